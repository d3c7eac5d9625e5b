"""Every broker: unit, process, ports, files, HTTP endpoint, and a record written to and read from it."""

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig.wait import wait_until
from tests.smoke import by_ssh
from tests.smoke.conftest import (
    HTTP_S,
    client,
    clients_address,
    config_dir,
    install_dir,
    machine,
    process_status,
    properties,
    setting,
    status,
    unit,
    user_and_group,
)


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
        ("LimitCORE", "0"),
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


def test_the_unit_has_the_inventorys_user_and_watchdog(broker):
    shown = unit(broker.host, broker.unit)
    assert (shown["User"], shown["Group"]) == user_and_group(broker.host)
    if setting(broker.host, "broker_watchdog_s", default=30) == 30:
        assert shown["WatchdogUSec"] == "30s"


@pytest.mark.parametrize(
    ("key", "variable", "default"),
    [
        ("OOMScoreAdjust", "broker_oom_score_adjust", -500),
        ("TasksMax", "broker_tasks_max", 4096),
        ("LogRateLimitBurst", "broker_log_burst", 10_000),
    ],
)
def test_the_unit_has_the_inventorys_limits(broker, key, variable, default):
    assert unit(broker.host, broker.unit)[key] == str(setting(broker.host, variable, default=default))


def test_the_unit_needs_the_file_systems_of_the_brokers_directories(broker):
    wanted = unit(broker.host, broker.unit)["RequiresMountsFor"].split()
    assert set(wanted) >= set(properties(broker)["log.dirs"].split(","))


def test_the_unit_is_the_brokers_own_and_names_the_release(broker):
    """A neighbour's roll changes nothing for it."""
    path = f"/etc/systemd/system/{broker.unit}"
    file, shown = machine(broker.host).file(path), unit(broker.host, broker.unit)
    assert (oct(file.mode), file.user, file.group) == (oct(0o644), "root", "root")
    assert shown["FragmentPath"] == path
    assert f"path={install_dir(broker.host)}/releases/" in shown["ExecStart"]


def test_the_broker_tells_systemd_what_it_does(broker):
    assert unit(broker.host, broker.unit)["StatusText"]


def test_the_process_has_no_privileges(broker):
    fields = process_status(broker.host, unit(broker.host, broker.unit)["MainPID"])
    assert fields["NoNewPrivs"] == "1"
    assert fields["CapEff"] == fields["CapBnd"] == "0" * 16
    assert fields["Seccomp"] == "2"


def test_files_belong_to_whom_they_should(broker):
    user, group = user_and_group(broker.host)
    name = f"broker-{broker.broker_id}"
    files = [f"{config_dir(broker.host)}/{name}.{kind}" for kind in ("properties", "env")]
    directories = [
        *properties(broker)["log.dirs"].split(","),
        f"/var/log/landline/{name}",
        f"/run/landline/{name}",
    ]
    wanted = {path: (oct(0o640), "root", group) for path in files}
    wanted |= {path: (oct(0o750), user, group) for path in directories}
    seen = {path: machine(broker.host).file(path) for path in wanted}
    assert {path: (oct(file.mode), file.user, file.group) for path, file in seen.items()} == wanted


def test_its_ports_are_open(broker):
    sockets = machine(broker.host).socket.get_listening_sockets()
    ports = {int(socket.rsplit(":", 1)[1]) for socket in sockets if socket.startswith("tcp://")}
    announced = {int(each.rsplit(":", 1)[1]) for each in status(broker)["listeners"]}
    assert {broker.http_port, *announced} <= ports
    assert len(announced) == 1 or broker.internal_port


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_the_http_endpoint_answers(broker, path):
    code, body = broker.get(path, HTTP_S)
    assert code == 200, body


def test_metrics_have_kafkas_names(broker):
    _, body = broker.get("/metrics", HTTP_S)
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
def replicas(broker, cluster):
    """Where the replicas of a topic are that this broker is to lead."""
    others = [b.broker_id for b in cluster.brokers() if b.broker_id != broker.broker_id]
    return [broker.broker_id, *others[:2]]


@pytest.fixture
def topic(broker, replicas):
    """A topic with one partition that this broker leads, replicated as usual; deleted afterwards. Without a name
    where this machine does not reach the broker.
    """
    if broker.tunnel:
        yield ""
        return
    name = f"landline.smoke-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(client(**{"bootstrap.servers": clients_address(broker)}))
    new = NewTopic(name, num_partitions=1, replica_assignment=[replicas])
    admin.create_topics([new], operation_timeout=20)[name].result(30)
    yield name
    admin.delete_topics([name], operation_timeout=20)[name].result(30)


def leader_of(topic, bootstrap):
    found = (
        AdminClient(client(**{"bootstrap.servers": bootstrap})).list_topics(topic, timeout=10).topics[topic]
    )
    return found.partitions[0].leader if found.partitions else None


def test_a_record_goes_to_the_broker_and_comes_back(broker, topic, replicas):
    if broker.tunnel:
        given = by_ssh.settings(broker.tunnel, clients_address(broker), client())
        written, came_back = by_ssh.round_trip(given, broker.broker_id, replicas)
        assert came_back == written
        return
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
