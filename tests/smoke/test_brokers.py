"""Every broker: unit, process, ports, files, HTTP endpoint, and a record written to and read from it."""

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig.wait import wait_until
from tests.smoke.conftest import HTTP_S, client, clients_address, machine, process_status, status, unit
from tools.http_access import get


def test_the_service_runs_and_starts_at_boot(broker):
    service = machine(broker.host).service(broker.unit)
    assert service.is_running
    assert service.is_enabled


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("Restart", "always"),
        ("WatchdogUSec", "30s"),
        ("LimitCORE", "0"),
        ("OOMScoreAdjust", "-500"),
        ("TasksMax", "4096"),
        ("LogRateLimitBurst", "10000"),
        ("User", "landline"),
        ("Group", "landline"),
        ("ConfigurationDirectory", "landline"),
        ("NoNewPrivileges", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("LockPersonality", "yes"),
        ("PrivateDevices", "yes"),
        ("PrivateTmp", "yes"),
        ("ProtectHome", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("RestrictSUIDSGID", "yes"),
        ("RestrictNamespaces", "yes"),
        ("CapabilityBoundingSet", ""),
    ],
)
def test_the_unit_is_as_written(broker, key, value):
    # What is empty is not shown at all.
    assert unit(broker.host, broker.unit).get(key, "") == value


def test_the_unit_is_the_brokers_own_and_names_the_release(broker):
    """A neighbour's roll changes nothing for it."""
    path = f"/etc/systemd/system/{broker.unit}"
    file, shown = machine(broker.host).file(path), unit(broker.host, broker.unit)
    assert (oct(file.mode), file.user, file.group) == (oct(0o644), "root", "root")
    assert shown["FragmentPath"] == path
    assert "path=/opt/landline/releases/" in shown["ExecStart"]


def test_the_broker_tells_systemd_what_it_does(broker):
    assert unit(broker.host, broker.unit)["StatusText"]


def test_the_process_has_no_privileges(broker):
    fields = process_status(broker.host, unit(broker.host, broker.unit)["MainPID"])
    assert fields["NoNewPrivs"] == "1"
    assert fields["CapEff"] == fields["CapBnd"] == "0" * 16
    assert fields["Seccomp"] == "2"


@pytest.mark.parametrize(
    ("path", "mode", "user", "group"),
    [
        ("/etc/landline/broker-{id}.properties", 0o640, "root", "landline"),
        ("/etc/landline/broker-{id}.env", 0o640, "root", "landline"),
        ("/var/lib/landline/broker-{id}", 0o750, "landline", "landline"),
        ("/var/log/landline/broker-{id}", 0o750, "landline", "landline"),
        ("/run/landline/broker-{id}", 0o750, "landline", "landline"),
    ],
)
def test_files_belong_to_whom_they_should(broker, path, mode, user, group):
    file = machine(broker.host).file(path.format(id=broker.broker_id))
    assert (oct(file.mode), file.user, file.group) == (oct(mode), user, group)


def test_its_ports_are_open(broker):
    sockets = machine(broker.host).socket.get_listening_sockets()
    ports = {int(socket.rsplit(":", 1)[1]) for socket in sockets if socket.startswith("tcp://")}
    announced = {int(each.rsplit(":", 1)[1]) for each in status(broker)["listeners"]}
    assert {broker.http_port, *announced} <= ports
    assert len(announced) == 1 or broker.internal_port


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_the_http_endpoint_answers(broker, path):
    code, body = get(broker.url + path, HTTP_S)
    assert code == 200, body


def test_metrics_have_kafkas_names(broker):
    _, body = get(f"{broker.url}/metrics", HTTP_S)
    assert "kafka_server_replicamanager_underreplicatedpartitions" in body.lower()


def test_the_status_is_of_this_broker_and_it_runs(broker):
    found = status(broker)
    assert found["broker_id"] == broker.broker_id
    assert found["state"] in {"RunningAsBroker", "RunningAsController"}
    assert found["offline_partitions"] == 0
    assert found["startup_ms"] > 0
    assert [step for step in found["startup_steps"] if step["ms"] >= 0] == found["startup_steps"] != []


def test_the_journal_has_no_traceback(broker):
    found = machine(broker.host).run("journalctl --boot --unit=%s --grep=Traceback --output=cat", broker.unit)
    assert "Traceback" not in found.stdout


@pytest.fixture
def topic(broker, cluster):
    """A topic with one partition that this broker leads, replicated as usual; deleted afterwards."""
    others = [b.broker_id for b in cluster.brokers() if b.broker_id != broker.broker_id]
    name = f"landline.smoke-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(client(**{"bootstrap.servers": clients_address(broker)}))
    new = NewTopic(name, num_partitions=1, replica_assignment=[[broker.broker_id, *others[:2]]])
    admin.create_topics([new], operation_timeout=20)[name].result(30)
    yield name
    admin.delete_topics([name], operation_timeout=20)[name].result(30)


def leader_of(topic, bootstrap):
    found = (
        AdminClient(client(**{"bootstrap.servers": bootstrap})).list_topics(topic, timeout=10).topics[topic]
    )
    return found.partitions[0].leader if found.partitions else None


def test_a_record_goes_to_the_broker_and_comes_back(broker, topic):
    there = {"bootstrap.servers": clients_address(broker)}
    wait_until(
        lambda: leader_of(topic, there["bootstrap.servers"]) == broker.broker_id, 20, what="leadership"
    )
    value = uuid.uuid4().bytes
    delivered = []
    producer = Producer(client(**there, acks="all", **{"enable.idempotence": True}))
    producer.produce(topic, value, on_delivery=lambda error, message: delivered.append((error, message)))
    assert producer.flush(30) == 0
    [(error, message)] = delivered
    assert error is None
    consumer = Consumer(client(**there, **{"group.id": "landline.smoke"}))
    try:
        consumer.assign([TopicPartition(topic, 0, message.offset())])
        read = consumer.poll(30)
        assert read is not None
        assert read.error() is None
        assert read.value() == value
    finally:
        consumer.close()
