"""Brokers with TLS listeners and their clients: served, rotated, and refused at start."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaConsumer, KafkaProducer

from rig.brokers import HOST, unused_port
from rig.certificates import trusting
from rig.landline_broker import LandlineStandalone
from rig.wait import wait_until
from tests.integration.test_start_refusals import run_to_end
from tests.support.certificates import DAY, Authority
from tests.support.secured_clients import CLIENT_WARNINGS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), *CLIENT_WARNINGS]

RULES = r"RULE:^CN=(alice|bob),.*$/$1/"


@dataclass
class Site:
    """An authority's files, and a broker's ports."""

    directory: Path
    authority: Authority
    plain_port: int
    tls_port: int

    @classmethod
    def at(cls, directory: Path) -> Site:
        site = cls(directory, Authority(), unused_port(), unused_port())
        site.authority.issue().write_pem(directory / "broker.pem")
        site.authority.write_pem(directory / "ca.pem")
        for name in ("alice", "mallory"):
            site.authority.issue(name, ()).write_pem(directory / f"{name}.pem")
        return site

    def file(self, name: str) -> str:
        return str(self.directory / name)

    def config(self, **changes: object) -> dict[str, object]:
        return {
            "listeners": f"PLAINTEXT://{HOST}:{self.plain_port},SSL://{HOST}:{self.tls_port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.file("broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.file("ca.pem"),
            "offsets.topic.num.partitions": 2,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    def confluent(self, name: str = "alice", **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": f"{HOST}:{self.tls_port}",
            "security.protocol": "ssl",
            "ssl.ca.location": self.file("ca.pem"),
            "ssl.certificate.location": self.file(f"{name}.pem"),
            "ssl.key.location": self.file(f"{name}.pem"),
            "log_level": 0,
            **more,
        }

    def python(self, name: str = "alice") -> dict[str, Any]:
        return {
            "bootstrap_servers": f"{HOST}:{self.tls_port}",
            "security_protocol": "SSL",
            "ssl_cafile": self.file("ca.pem"),
            "ssl_certfile": self.file(f"{name}.pem"),
            "ssl_keyfile": self.file(f"{name}.pem"),
        }

    def seen_certificate(self) -> int:
        """The serial number of the certificate that a new connection sees."""
        context = trusting(Path(self.file("ca.pem")).read_text())
        context.load_cert_chain(self.file("alice.pem"))
        with (
            socket.create_connection((HOST, self.tls_port), 10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as secured,
        ):
            return int(str((secured.getpeercert() or {})["serialNumber"]), 16)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield Site.at(tmp_path_factory.mktemp("tls"))
    gc.collect()


@pytest.fixture(scope="module")
def broker(site: Site) -> Iterator[LandlineStandalone]:
    """Only alice and bob have a principal; nobody else gets in."""
    config = site.config(ssl_client_auth="required", ssl_principal_mapping_rules=RULES)
    with LandlineStandalone(site.directory / "data", config, port=site.plain_port) as running:
        yield running
        assert "traceback=" not in running.log_text()


def test_confluent_kafka_produces_and_consumes_large_and_small_records(
    site: Site, broker: LandlineStandalone
) -> None:
    sent = [bytes((number % 256,)) * (1 if number % 2 else 200_000) for number in range(200)]
    producer = Producer(site.confluent())
    for value in sent:
        producer.produce("confluent", value)
        producer.poll(0)
    assert producer.flush(60) == 0
    consumer = Consumer(site.confluent(**{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["confluent"])
    got: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(got) < len(sent) and time.monotonic() < deadline:
        got += [message.value() for message in consumer.consume(100, 1) if not message.error()]
    consumer.close()
    assert got == sent


def test_kafka_python_produces_and_consumes(site: Site, broker: LandlineStandalone) -> None:
    sent = [b"%d" % number * 5_000 for number in range(100)]
    producer = KafkaProducer(**site.python())
    for value in sent:
        producer.send("python", value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        "python", **site.python(), auto_offset_reset="earliest", group_id="p", consumer_timeout_ms=30_000
    )
    got = [next(consumer).value for _ in sent]
    consumer.close()
    assert got == sent


def test_aiokafka_produces_and_consumes(site: Site, broker: LandlineStandalone) -> None:
    context = trusting(Path(site.file("ca.pem")).read_text())
    context.load_cert_chain(site.file("alice.pem"))
    how = {
        "bootstrap_servers": f"{HOST}:{site.tls_port}",
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    sent = [b"%d" % number * 5_000 for number in range(100)]

    async def work() -> list[bytes]:
        producer = AIOKafkaProducer(**how)
        await producer.start()
        for value in sent:
            await producer.send("aio", value)
        await producer.stop()
        consumer = AIOKafkaConsumer("aio", **how, auto_offset_reset="earliest", group_id="a")
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in sent]
        finally:
            await consumer.stop()

    assert asyncio.run(work()) == sent


def test_metadata_answers_with_the_listener_that_the_request_came_by(
    site: Site, broker: LandlineStandalone
) -> None:
    by_tls = AdminClient(site.confluent()).list_topics(timeout=20)
    assert [each.port for each in by_tls.brokers.values()] == [site.tls_port]
    assert list(broker.view().ports.values()) == [site.plain_port]


@pytest.mark.parametrize("name", ["mallory", ""])
def test_who_has_no_certificate_or_no_rule_for_it_gets_nowhere(
    site: Site, broker: LandlineStandalone, name: str
) -> None:
    config = site.confluent(name or "alice")
    if not name:
        del config["ssl.certificate.location"], config["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=3)
    reason = (
        "no rule of ssl.principal.mapping.rules matches CN=mallory,C=DE"
        if name
        else "ssl.client.auth=required"
    )
    wait_until(lambda: reason in broker.log_text(), 20, what="the log says why")


def test_a_certificate_is_rotated_while_clients_work(site: Site, tmp_path: Path) -> None:
    mine = Site.at(tmp_path)
    config = mine.config(ssl_client_auth="requested")
    with (
        LandlineStandalone(tmp_path / "data", config, port=mine.plain_port) as running,
        working(mine) as work,
    ):
        before = mine.seen_certificate()
        # By the file: whoever rotates it replaces it.
        new = mine.authority.issue(ends=50 * DAY)
        new.write_pem(tmp_path / "next.pem").replace(tmp_path / "broker.pem")
        wait_until(lambda: mine.seen_certificate() == new.certificate.serial_number != before, 30)
        # By a config: another file.
        other = mine.authority.issue(ends=60 * DAY)
        other.write_pem(tmp_path / "other.pem")
        set_config(mine, "listener.name.ssl.ssl.keystore.location", str(tmp_path / "other.pem"))
        wait_until(lambda: mine.seen_certificate() == other.certificate.serial_number, 30)
        # A bad one is refused before it is written, and a bad file changes nothing.
        with pytest.raises(KafkaException, match=r"/nowhere does not exist"):
            set_config(mine, "listener.name.ssl.ssl.keystore.location", "/nowhere")
        (tmp_path / "other.pem").write_bytes(b"half a fi")
        wait_until(lambda: "tls_reload_failed" in running.log_text(), 30)
        assert mine.seen_certificate() == other.certificate.serial_number
        seen = work.acknowledged
        wait_until(lambda: work.acknowledged > seen + 20, 30, what="the clients go on")
        assert "landline_ssl_certificate_days_left" in metrics(running)
    assert work.errors == []


def set_config(site: Site, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
    admin = AdminClient(site.confluent())
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def metrics(broker: LandlineStandalone) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as page:
        return str(page.read(), "utf-8")


class working:  # noqa: N801 - a context
    """A producer and a consumer that work meanwhile, each on its connections, and others that come and go."""

    def __init__(self, site: Site) -> None:
        self.errors: list[str] = []
        self.acknowledged = 0
        self._site = site
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        producer = Producer(self._site.confluent(acks="all"))
        while not self._ended.wait(0.01):
            producer.produce("work", b"x" * 1000, on_delivery=self._delivered)
            producer.poll(0)
        if producer.flush(30):
            self.errors.append("not all was acknowledged")

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.acknowledged > 0, 30, what="the first acknowledgement")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)


# -- what does not start


def _expired(site: Site) -> dict[str, object]:
    own = site.authority.issue("late", begins=-9 * DAY, ends=-DAY)
    return {"ssl_keystore_location": own.write_pem(site.directory / "late.pem")}


def _mixed(site: Site) -> dict[str, object]:
    path = site.directory / "mixed.pem"
    path.write_bytes(site.authority.issue().key_pem() + site.authority.issue("other").chain_pem)
    return {"ssl_keystore_location": path}


def _foreign(site: Site) -> dict[str, object]:
    return {
        "ssl_truststore_location": Authority("Other").write_pem(site.directory / "foreign.pem"),
        "security_inter_broker_protocol": "SSL",
    }


def _jks(site: Site) -> dict[str, object]:
    path = site.directory / "broker.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002") + bytes(64))
    return {"ssl_keystore_type": "JKS", "ssl_keystore_location": path}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: {"ssl_keystore_location": "/nowhere/broker.pem"}, "does not exist"),
        (_expired, "expired on"),
        (_mixed, "the private key does not fit the certificate"),
        (_foreign, "could not connect to each other"),
        (_jks, "keytool -importkeystore"),
    ],
    ids=["missing", "expired", "mixed", "foreign", "jks"],
)
def test_a_store_that_cannot_be_used_prevents_the_start_and_is_named_with_its_line(
    tmp_path: Path, change: Callable[[Site], dict[str, object]], words: str
) -> None:
    site = Site.at(tmp_path)
    changed = change(site)
    config = {**site.config(**changed), "zookeeper.connect": "127.0.0.1:1", "log.dirs": tmp_path / "data"}
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    key = next(iter(changed)).replace("_", ".")
    if key == "ssl.keystore.type":
        key = "ssl.keystore.location"
    line = 1 + list(config).index(key)
    for command in ("check-config", "start"):
        done = run_to_end(command, path)
        assert done.returncode != 0
        assert f"{path}:{line}: {key}: " in done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()
