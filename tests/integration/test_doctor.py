"""`landline doctor`: from a client's host it names the wrong advertised listener, and on a broker's host what is wrong
with the host, with ZooKeeper or with the other brokers.

One real broker; the others are only registered, with addresses that are wrong in one way each.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.config.endpoint import Endpoint
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.znodes import BrokerRegistration, broker_path, encode_broker
from rig.brokers import HOST, unused_port
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker, LandlineStandalone
from rig.ports import free_port
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.certificates import Authority

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PASSWORD = "s3cret-of-alice"
STORE_PASSWORD = "s3cret-of-the-store"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Site(NamedTuple):
    """The broker, its ports by listener, and where files for clients go."""

    broker: LandlineBroker
    ports: Mapping[str, int]
    root: Path
    zk_connect: str

    @property
    def properties(self) -> Path:
        return self.root / "broker.properties"


@pytest.fixture(scope="module")
def site(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("doctor")
    authority = Authority()
    own = authority.issue("broker", ("elsewhere.example",)).write_p12(root / "own.p12", STORE_PASSWORD)
    authority.write_pem(root / "ca.pem")
    ports = {name: unused_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")}
    config: dict[str, object] = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": own,
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": root / "ca.pem",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="{PASSWORD}";',
    }
    zk_connect = zookeeper.chroot("doctor")
    with LandlineBroker(1, zk_connect, root / "broker", config, port=ports["PLAINTEXT"]) as broker:
        yield Site(broker, ports, root, zk_connect)


def doctor(*arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit code, and the JSON; nothing of it is a secret."""
    argv = [*COMMAND, "doctor", *map(str, arguments), "--json"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert "s3cret" not in done.stdout + done.stderr
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def of_level(found: dict[str, Any], level: str) -> dict[str, str]:
    """What was said by each check of a level."""
    return {each["check"]: each["said"] for each in found["checks"] if each["level"] == level}


def client_file(site: Site, **settings: object) -> Path:
    """``security_protocol`` is security.protocol."""
    path = site.root / "client.properties"
    path.write_text("".join(f"{name.replace('_', '.')}={text}\n" for name, text in settings.items()))
    return path


# -- a broker's host


def test_a_healthy_host_has_a_line_for_every_check_and_exit_code_0(site: Site) -> None:
    code, found = doctor(site.properties)
    assert (code, of_level(found, "fail")) == (0, {})
    checks = " | ".join(each["check"] for each in found["checks"])
    wanted = [
        "config",
        f"log dir {site.broker.log_dir}",
        "certificate of SSL",
        "zookeeper session",
        "cluster",
    ]
    wanted += ["broker", f"port {site.ports['SSL']}", f"broker 1 at {HOST}:{site.broker.port}"]
    for each in [
        *wanted,
        f"broker 1 at {HOST}:{site.ports['SSL']}",
        "open files",
        "memory",
        "clock",
        "versions",
    ]:
        assert each in checks
    said = {each["check"]: each["said"] for each in found["checks"]}
    assert said[f"zookeeper {site.zk_connect.partition('/')[0]}"].startswith("standalone, version 3")
    assert "as broker 1" in said[f"broker 1 at {HOST}:{site.broker.port}"]


def test_the_text_is_plain_without_a_terminal_and_ends_with_what_to_do_first(site: Site) -> None:
    wrong = f"{HOST}:{free_port()}"
    argv = [
        *COMMAND,
        "doctor",
        str(site.properties),
        "--override",
        f"zookeeper.connect={wrong}",
        "--within",
        "4",
    ]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    *checks, last = done.stdout.splitlines()
    assert all(line.startswith(("ok  ", "warn", "fail")) for line in checks)
    assert "\033" not in done.stdout
    assert f"First: zookeeper {wrong}: start zookeeper.service on {HOST}" in last


def test_a_dead_zookeeper_hides_nothing_else(site: Site) -> None:
    wrong = f"{HOST}:{free_port()},no-such-host.invalid:2181"
    began_s = time.monotonic()
    code, found = doctor(site.properties, "--override", f"zookeeper.connect={wrong}", "--within", "5")
    assert time.monotonic() - began_s < 60, "the deadline is 5 s, and a start takes some more"
    failed, good = of_level(found, "fail"), of_level(found, "ok")
    assert code == 1
    assert failed.keys() == {f"zookeeper {each}" for each in wrong.split(",")} | {"zookeeper session"}
    assert "does not resolve" in failed["zookeeper no-such-host.invalid:2181"]
    assert good["broker"].endswith(("RunningAsBroker", "RunningAsController"))
    assert f"port {site.broker.port}" in good


def test_data_of_another_cluster_or_broker_is_found(
    site: Site, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=of-another\n")
    code, found = doctor(site.properties, "--override", f"log.dirs={directory}")
    said = [each["said"] for each in found["checks"] if each["check"] == f"log dir {directory}"]
    assert code == 1
    assert any("is of cluster of-another, and zookeeper.connect leads to" in each for each in said)
    assert any("broker.id=7, the properties have broker.id=1" in each for each in said)


def test_a_chroot_that_nobody_made_is_not_made_by_looking(site: Site, zookeeper: ZooKeeperServer) -> None:
    wrong = zookeeper.chroot("nobody")
    code, found = doctor(site.properties, "--override", f"zookeeper.connect={wrong}")
    assert code == 1
    assert "does not exist: no broker has ever started" in of_level(found, "fail")["zookeeper session"]
    store = ZooKeeperStore(zookeeper.connect_string, 20_000)
    with closing(store):
        from threading import Event

        store.connect(20_000, Event())
        assert store.exists(f"/{wrong.partition('/')[2]}") is None


def test_a_broker_that_is_down_is_looked_at_too(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    taken = socket.create_server((HOST, 0))
    with closing(taken):
        port = taken.getsockname()[1]
        properties.write_text(
            f"broker.id=9\nlog.dirs={tmp_path}/data\nlisteners=PLAINTEXT://{HOST}:{port}\n"
            f"zookeeper.connect={zookeeper.chroot('down')}\nlandline.http.port=0\nssl.key.password=s3cret\n"
        )
        code, found = doctor(properties)
    assert code == 1
    assert "another process listens there" in of_level(found, "fail")[f"port {port}"]
    assert of_level(found, "warn")["broker"].startswith("does not run")
    assert "does not exist" in of_level(found, "warn")[f"log dir {tmp_path}/data"]


# -- a client's host


def test_a_client_sees_that_all_is_well(site: Site) -> None:
    code, found = doctor("--bootstrap-server", site.broker.bootstrap)
    assert (code, found["ok"], found["first"]) == (0, True, None)
    assert [each["check"] for each in found["checks"]] == [
        f"bootstrap {site.broker.bootstrap}",
        "controller",
        f"broker 1 at {site.broker.bootstrap}",
    ]


@pytest.fixture
def wrong_ones(
    site: Site, tmp_path: Path, zookeeper: ZooKeeperServer
) -> Iterator[Mapping[int, tuple[str, int]]]:
    """Registered brokers whose PLAINTEXT address is wrong: the address by broker id."""
    silent = socket.create_server((HOST, 0))
    store = ZooKeeperStore(site.zk_connect, 20_000)
    from threading import Event

    with closing(silent), closing(store), LandlineStandalone(tmp_path / "other") as other:
        store.connect(20_000, Event())
        wrong = {
            2: ("no-such-host.invalid", 9092),
            3: (HOST, free_port()),
            4: (HOST, site.broker.port),
            5: (HOST, other.port),
            6: (HOST, silent.getsockname()[1]),
        }
        for broker_id, (host, port) in wrong.items():
            registration = BrokerRegistration(broker_id, (Endpoint(host, port, "PLAINTEXT"),))
            store.create(broker_path(broker_id), encode_broker(registration), ephemeral=True)
        wait_until(lambda: set(site.broker.view().ports) >= set(wrong), what="the broker knows the others")
        yield wrong
        assert set(ClusterStore(store).broker_ids()) == {1, *wrong}


def test_each_wrong_advertised_listener_is_named(
    site: Site, wrong_ones: Mapping[int, tuple[str, int]]
) -> None:
    code, found = doctor("--bootstrap-server", site.broker.bootstrap, "--within", "8")
    failed = of_level(found, "fail")
    assert code == 1
    entry = {
        n: f"advertised.listeners of broker {n} says {host}:{port}" for n, (host, port) in wrong_ones.items()
    }
    said = {n: failed[f"broker {n} at {host}:{port}"] for n, (host, port) in wrong_ones.items()}
    assert said[2].startswith(f"{entry[2]}: its name does not resolve on this host")
    assert said[3] == f"{entry[3]}: connection refused"
    assert said[4].startswith(f"{entry[4]}, where another broker answers: this is broker 1")
    assert said[5].startswith(f"{entry[5]}, where a broker of another cluster answers")
    assert said[6] == f"{entry[6]}: it accepts connections and does not answer"
    assert "brokers 1 and 4 advertise the same address" in failed[f"address {site.broker.bootstrap}"]
    by_check = {each["check"]: each for each in found["checks"]}
    refused = by_check["broker 3 at {}:{}".format(*wrong_ones[3])]
    assert refused["config"] == "advertised.listeners in server.properties of broker 3"
    # The broker's host sees the same.
    code, found = doctor(site.properties, "--within", "8")
    assert code == 1
    assert {
        n: of_level(found, "fail").get(f"broker {n} at {host}:{port}")
        for n, (host, port) in wrong_ones.items()
    } == said


def test_a_certificate_for_another_name_is_said_with_its_names(site: Site) -> None:
    trust = {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": site.root / "ca.pem",
    }
    config = client_file(site, **trust)
    address = f"{HOST}:{site.ports['SSL']}"
    code, found = doctor("--bootstrap-server", address, "--command-config", config)
    assert code == 1
    said = of_level(found, "fail")[f"bootstrap {address}"]
    assert said == f"{address}: its TLS certificate is for another name (it is for DNS:elsewhere.example)"
    # Without the check of names it works, and another CA does not.
    trust["ssl_endpoint_identification_algorithm"] = ""
    assert doctor("--bootstrap-server", address, "--command-config", client_file(site, **trust))[0] == 0
    trust["ssl_truststore_location"] = Authority("Another").write_pem(site.root / "other-ca.pem")
    code, found = doctor("--bootstrap-server", address, "--command-config", client_file(site, **trust))
    assert (code, "certificate is not trusted" in of_level(found, "fail")[f"bootstrap {address}"]) == (
        1,
        True,
    )


def test_the_wrong_protocol_and_a_wrong_password_are_told_apart(site: Site) -> None:
    address = f"{HOST}:{site.ports['SASL_PLAINTEXT']}"

    def logged_in(password: str) -> tuple[int, dict[str, Any]]:
        jaas = f'{PLAIN} username="alice" password="{password}";'
        config = client_file(
            site, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=jaas
        )
        return doctor("--bootstrap-server", address, "--command-config", config)

    assert logged_in(PASSWORD)[0] == 0
    code, found = logged_in("s3cret-but-wrong")
    assert (code, "it refused the login" in of_level(found, "fail")[f"bootstrap {address}"]) == (1, True)
    code, found = doctor("--bootstrap-server", f"{HOST}:{site.ports['SSL']}", "--within", "6")
    (said,) = of_level(found, "fail").values()
    assert (code, "it closed the connection" in said or "does not answer" in said) == (1, True)
    code, found = doctor(
        "--bootstrap-server",
        site.broker.bootstrap,
        "--command-config",
        client_file(site, security_protocol="TLS"),
    )
    assert of_level(found, "fail") == {
        "client config": "security.protocol is 'TLS', none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
    }
