"""GSSAPI with a KDC: Java's and Python's clients log in, and a broker to itself; and who is refused, and why."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, NewTopic, ResourcePattern, ResourceType

from broker.config.kerberos import RULES
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.sasl.exchange import LoginFailed
from rig.brokers import HOST, unused_port, write_properties
from rig.kafka_dist import run_tool
from rig.landline_broker import COMMAND, REPOSITORY, LandlineStandalone
from rig.raw_client import RawClient, stranger
from rig.wait import last_for, wait_until
from tests.support import kerberos
from tests.support.kerberos import JAAS, SERVICE, Realm, login_module, repeated
from tests.support.sasl_frames import log_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TOPIC = "kerberos"
MAX_LOGIN_MS = 6_000


class KerberosBroker(LandlineStandalone):
    """A standalone broker with a PLAINTEXT listener for the rig, and a GSSAPI listener, which it uses itself."""

    def __init__(self, data_dir: Path, realm: Realm) -> None:
        port, self.sasl_port = unused_port(), unused_port()
        super().__init__(
            data_dir,
            {
                **realm.listeners(port, self.sasl_port),
                RULES: "RULE:[1:$1](.*-job)s/-job//,DEFAULT",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS;User:kafka",
                "landline.sasl.authentication.max.ms": MAX_LOGIN_MS,
                "num.network.threads": 1,
                "offsets.topic.num.partitions": 1,
            },
            port,
        )


@dataclass
class World:
    realm: Realm
    broker: KerberosBroker


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A realm, and a broker that gives User:alice all rights on one topic. The tests share its network thread."""
    root = tmp_path_factory.mktemp("kerberos")
    with Realm(root / "kdc") as realm, pytest.MonkeyPatch.context() as patch:
        realm.join(patch)
        realm.add(SERVICE, "alice", "alice-job", "bob", "eve/of/three")
        with KerberosBroker(root / "data", realm) as broker:
            give_rights(broker)
            yield World(realm, broker)
            assert "traceback=" not in broker.log_text()


def give_rights(broker: KerberosBroker) -> None:
    """With the topic that they are for."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    client.create_topics([NewTopic(TOPIC, 1, 1)])
    for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, TOPIC)):
        client.create_acls(
            [ACL("User:alice", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, ResourcePattern(kind, name))]
        )
    client.close()


def java_client(world: World, name: str, tmp_path: Path) -> tuple[str, ...]:
    """The arguments of a console tool that logs in as ``name``."""
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={world.realm.jaas(name)}\n"
    )
    server = f"{kerberos.HOST}:{world.broker.sasl_port}"
    return "--bootstrap-server", server, "--command-config", str(config)


def test_javas_console_tools_write_and_read(world: World, tmp_path: Path) -> None:
    connect = java_client(world, "alice-job", tmp_path)
    to_producer = [word.replace("--command-config", "--producer.config") for word in connect]
    written = run_tool("kafka.tools.ConsoleProducer", *to_producer, "--topic", TOPIC, input_text="hello\n")
    assert written.returncode == 0, written.stderr
    assert "ERROR" not in written.stderr
    to_consumer = [word.replace("--command-config", "--consumer.config") for word in connect]
    read = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *to_consumer,
        *(
            "--topic",
            TOPIC,
            "--group",
            TOPIC,
            "--from-beginning",
            "--max-messages",
            "1",
            "--timeout-ms",
            "60000",
        ),
    )
    assert read.stdout.strip() == "hello", read.stderr


def test_kafka_python_writes_and_reads(world: World) -> None:
    """In a process of its own: it looks for the GSSAPI library when it is first imported."""
    script = f"""
from kafka import KafkaConsumer, KafkaProducer
settings = dict(
    bootstrap_servers="{kerberos.HOST}:{world.broker.sasl_port}", security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka", sasl_kerberos_domain_name="{kerberos.HOST}",
)
producer = KafkaProducer(**settings)
sent = producer.send("{TOPIC}", b"from Python").get(30)
producer.close()
consumer = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
from kafka import TopicPartition
consumer.assign([TopicPartition(sent.topic, sent.partition)])
consumer.seek(TopicPartition(sent.topic, sent.partition), sent.offset)
print(next(consumer).value.decode())
"""
    own = {"KRB5_CLIENT_KTNAME": str(world.realm.keys["alice"]), "KRB5CCNAME": "MEMORY:alice"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "from Python", done.stderr


def connection(world: World) -> RawClient:
    """From an address of its own: the audit log has a line a second for each."""
    return RawClient(HOST, world.broker.sasl_port, from_host=stranger())


def refusals(world: World, reason: str) -> list[str]:
    lines = world.broker.log_text().splitlines()
    return [line for line in lines if "authentication_failed" in line and reason in line]


def test_a_client_is_who_its_ticket_is_for(world: World) -> None:
    names = []
    for name in ("alice", "bob"):
        with connection(world) as raw:
            assert log_in(raw, "GSSAPI", world.realm.tokens(name)).error_code == Errors.NONE
            topics = raw.ask(ApiKey.METADATA, 5, {"topics": None, "allow_auto_topic_creation": False}).topics
            names.append([str(topic.name) for topic in topics])
    assert names == [[TOPIC], []]


def test_a_client_authenticates_again_as_itself_alone(world: World) -> None:
    with connection(world) as raw:
        assert log_in(raw, "GSSAPI", world.realm.tokens("bob")).error_code == Errors.NONE
        last_for(1.1)  # Kafka's pause between two authentications
        assert log_in(raw, "GSSAPI", world.realm.tokens("bob")).error_code == Errors.NONE
        last_for(1.1)
        said = log_in(raw, "GSSAPI", world.realm.tokens("alice"))
        assert said.error_message == "Cannot change principals during re-authentication"
        assert not raw.is_open()


def test_a_principal_that_no_rule_is_for_is_refused(world: World) -> None:
    with connection(world) as raw:
        assert (
            log_in(raw, "GSSAPI", world.realm.tokens("eve/of/three")).error_code
            == Errors.SASL_AUTHENTICATION_FAILED
        )
        assert not raw.is_open()
    wait_until(lambda: refusals(world, "one or two components"), what="the refusal is in the log")
    assert f"eve/of/three@{world.realm.name}" in refusals(world, "one or two components")[0]


def test_a_ticket_for_another_service_is_refused(world: World) -> None:
    world.realm.add("kafka/elsewhere")
    with connection(world) as raw:
        said = log_in(raw, "GSSAPI", world.realm.tokens("bob", "elsewhere"))
        assert said.error_code == Errors.SASL_AUTHENTICATION_FAILED
        assert "kafka" not in said.error_message
        assert not raw.is_open()
    wait_until(lambda: refusals(world, "kafka/elsewhere"), what="the refusal is in the log")


def test_a_replayed_token_proves_nobody(world: World) -> None:
    """Java's clients ask for no proof of the server. Whoever repeats what they sent would be let in."""
    with connection(world) as raw, connection(world) as thief:
        answers = repeated(world.realm.only_token("alice"), raw, thief)
    assert [one.error_code for one in answers] == [Errors.NONE, Errors.SASL_AUTHENTICATION_FAILED]
    wait_until(lambda: refusals(world, "replay"), what="the refusal is in the log")


def test_a_new_key_in_the_file_counts_without_a_restart(world: World) -> None:
    world.realm.renew(SERVICE)
    world.realm.add("carol")
    with connection(world) as raw:
        assert log_in(raw, "GSSAPI", world.realm.tokens("carol")).error_code == Errors.NONE


def test_a_key_file_that_hangs_holds_up_nobody_else(world: World) -> None:
    """The file is a pipe that nobody writes to. The listeners share a network thread."""
    keytab, saved = world.realm.keys[SERVICE], world.realm.keys[SERVICE].with_suffix(".saved")
    keytab.rename(saved)
    os.mkfifo(keytab)
    try:
        with connection(world) as raw, RawClient(HOST, world.broker.port) as other:
            waiting = world.realm.tokens("bob")
            raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
            with pytest.raises(ConnectionError):
                raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": waiting.next(b"")})
            assert other.ask(ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": False}).brokers
        assert f"landline.sasl.authentication.max.ms={MAX_LOGIN_MS}" in world.broker.log_text()
    finally:
        pipe = os.open(keytab, os.O_WRONLY | os.O_NONBLOCK)
        saved.rename(keytab)
        os.close(pipe)
    with connection(world) as raw:
        assert log_in(raw, "GSSAPI", world.realm.tokens("bob")).error_code == Errors.NONE


def test_a_kdc_that_is_silent_holds_up_only_who_needs_it(world: World) -> None:
    """The broker needs none to let in a client that has its ticket."""
    with connection(world) as raw:
        assert log_in(raw, "GSSAPI", world.realm.tokens("alice")).error_code == Errors.NONE
    world.realm.add("dave")
    got: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    asking = threading.Thread(target=lambda: got.put(world.realm.tokens("dave").next(b"")))
    with world.realm.silent():
        asking.start()
        with connection(world) as raw:
            assert log_in(raw, "GSSAPI", world.realm.tokens("alice")).error_code == Errors.NONE
            assert raw.ask(ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": False}).brokers
        assert asking.is_alive()
    assert got.get(timeout=60)
    asking.join()


def test_a_kdc_that_was_not_reached_is_not_asked_again_for_a_while(world: World, tmp_path: Path) -> None:
    now_s = 0.0
    with pytest.MonkeyPatch.context() as patch, Realm(tmp_path / "kdc") as realm:
        patch.setenv("KRB5_CONFIG", str(realm.krb5_conf))
        realm.add(SERVICE, "alice")
        client = realm.client("alice", lambda: now_s)
        realm.stop()
        with pytest.raises(LoginFailed, match="Cannot contact any KDC"):
            client.tokens(kerberos.HOST).next(b"")
        realm.start()
        with pytest.raises(LoginFailed, match="no KDC answered in the last 10 s"):
            client.tokens(kerberos.HOST)
        now_s = 10.0
        assert client.tokens(kerberos.HOST).next(b"")


def check(world: World, tmp_path: Path, changes: dict[str, object], **env: str) -> str:
    """What `landline check-config` says about a configuration that the broker refuses."""
    settings = {
        "zookeeper.connect": "127.0.0.1:2181",
        "broker.id": 1,
        "log.dirs": tmp_path,
        "listeners": f"PLAINTEXT://{HOST}:9092,SASL_PLAINTEXT://{HOST}:9093",
        JAAS: world.realm.jaas(SERVICE),
        **changes,
    }
    file = write_properties(tmp_path / "server.properties", settings)
    argv = [*COMMAND, "check-config", str(file)]
    done = subprocess.run(
        argv, cwd=REPOSITORY, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == (78 if done.stderr else 0)
    return done.stderr


def test_a_start_without_a_usable_key_is_refused(world: World, tmp_path: Path) -> None:
    assert check(world, tmp_path, {}) == ""
    other = check(world, tmp_path, {JAAS: login_module("kafka/other", world.realm.keys[SERVICE])})
    assert f"{JAAS}: the key of kafka/other cannot be used: No key table entry found" in other
    missing = check(world, tmp_path, {JAAS: login_module(SERVICE, tmp_path / "missing")})
    assert f"server.properties:2: {JAAS}: the key of {SERVICE} cannot be used" in missing
    assert "missing' not found" in missing


def test_a_start_with_a_mistake_in_a_rule_is_refused(world: World, tmp_path: Path) -> None:
    said = check(world, tmp_path, {RULES: "RULE:[1:$2]"})
    assert f"{RULES}: $2 in 'RULE:[1:$2]' is none of $0 to $1" in said
