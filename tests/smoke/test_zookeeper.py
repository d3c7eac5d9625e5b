"""The ZooKeeper ensemble: units, ports, files and the quorum."""

import json

import pytest
from kazoo.client import KazooClient

from sparkctl.inventory import host_port
from tests.smoke import by_ssh
from tests.smoke.conftest import (
    listening_addresses,
    machine,
    process_status,
    properties,
    setting,
    status,
    unit,
)

UNIT = "zookeeper.service"
TOP_LEVEL = [
    "/admin/delete_topics",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/cluster/id",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
]


def port(name):
    return int(setting(name, "zookeeper_client_port", default=2181))


def client_address(name):
    """What the server listens at; empty where that is all of the host's addresses."""
    address = setting(name, "zookeeper_client_address", default="").strip("[]")
    return "" if address in ("0.0.0.0", "::") else address


def ask(name, word):
    """The server's answer to one of its four-letter commands."""
    address = client_address(name) or "127.0.0.1"
    script = f"exec 3<>/dev/tcp/{address}/{port(name)}; printf {word} >&3; cat <&3"
    return machine(name).check_output("bash -c %s", script)


def mode(name):
    lines = ask(name, "srvr").splitlines()
    return next(line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: "))


@pytest.fixture(scope="module")
def servers(cluster):
    """The hosts of the ensemble."""
    names = cluster.hosts("zookeeper")
    if not names:
        pytest.skip("the inventory has no group zookeeper: the brokers' ensemble is another one's")
    return names


@pytest.fixture(scope="module")
def zookeeper(cluster, servers):
    """A kazoo client below the cluster's chroot."""
    names = servers
    addresses = {
        name: setting(name, "zookeeper_address", default=cluster.service_address(name)) for name in names
    }
    connect = ",".join(host_port(addresses[name], port(name)) for name in names)
    chroot = cluster.variables(cluster.hosts("brokers")[0]).get("broker_zookeeper_chroot", "")
    tunnel = cluster.tunnel(names[0], addresses[names[0]])
    handler = by_ssh.KazooHandler(tunnel) if tunnel else None
    client = KazooClient(hosts=connect + chroot, timeout=10, read_only=True, handler=handler)
    client.start(timeout=15)
    yield client
    client.stop()
    client.close()


def test_the_service_runs_and_starts_at_boot(zookeeper_name):
    service = machine(zookeeper_name).service("zookeeper")
    assert service.is_running
    assert service.is_enabled


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("User", "zookeeper"),
        ("Restart", "always"),
        ("LimitCORE", "0"),
        ("NoNewPrivileges", "yes"),
        ("PrivateTmp", "yes"),
        ("ProtectHome", "yes"),
        ("ProtectSystem", "strict"),
        ("StateDirectory", "zookeeper"),
    ],
)
def test_the_unit_is_as_written(zookeeper_name, key, value):
    assert unit(zookeeper_name, UNIT)[key] == value


@pytest.mark.parametrize(
    ("key", "variable", "default"),
    [
        ("OOMScoreAdjust", "zookeeper_oom_score_adjust", -900),
        ("TasksMax", "zookeeper_tasks_max", 4096),
        ("LogRateLimitBurst", "zookeeper_log_burst", 10_000),
    ],
)
def test_the_unit_has_the_inventorys_limits(zookeeper_name, key, variable, default):
    assert unit(zookeeper_name, UNIT)[key] == str(setting(zookeeper_name, variable, default=default))


def test_the_process_has_no_privileges(zookeeper_name):
    fields = process_status(zookeeper_name, unit(zookeeper_name, UNIT)["MainPID"])
    assert fields["NoNewPrivs"] == "1"
    assert fields["CapEff"] == "0" * 16
    assert fields["Seccomp"] == "2"


def test_the_client_port_is_open(zookeeper_name):
    address = client_address(zookeeper_name)
    wanted = {address} if address else {"0.0.0.0", "::"}
    assert wanted & listening_addresses(zookeeper_name, port(zookeeper_name))


def test_the_server_is_alive(zookeeper_name):
    assert ask(zookeeper_name, "ruok") == "imok"


def test_data_is_kept_where_it_belongs(zookeeper_name, cluster):
    host = machine(zookeeper_name)
    wanted = cluster.variables(zookeeper_name).get("zookeeper_id")
    place = cluster.hosts("zookeeper").index(zookeeper_name) + 1
    data = setting(zookeeper_name, "zookeeper_data_dir", default="/var/lib/zookeeper")
    assert host.file(f"{data}/myid").content_string.strip() == str(wanted or place)
    assert host.file(f"{data}/version-2").user == "zookeeper"
    assert oct(host.file(data).mode) == oct(0o750)


def test_the_ensemble_has_one_leader(servers):
    modes = sorted(map(mode, servers))
    expected = ["standalone"] if len(modes) == 1 else ["follower"] * (len(modes) - 1) + ["leader"]
    assert modes == expected


@pytest.mark.parametrize("path", TOP_LEVEL)
def test_kafkas_znodes_are_there(zookeeper, path):
    assert zookeeper.exists(path)


def test_exactly_the_inventorys_brokers_are_registered(zookeeper, cluster):
    assert sorted(map(int, zookeeper.get_children("/brokers/ids"))) == sorted(
        b.broker_id for b in cluster.brokers()
    )


def place_of(endpoint):
    """Address and port of NAME://HOST:PORT."""
    host, _, number = endpoint.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(number)


def test_a_brokers_registration_says_where_it_is(zookeeper, broker):
    registered = json.loads(zookeeper.get(f"/brokers/ids/{broker.broker_id}")[0])
    announced = [each.strip() for each in properties(broker)["advertised.listeners"].split(",")]
    assert registered["endpoints"] == announced
    if "advertised.listeners" not in setting(broker.host, "broker_properties", default={}):
        assert {place_of(each)[0] for each in announced} == {broker.address}
    # For old clients, which know no listeners.
    protocols = registered["listener_security_protocol_map"]
    plain = [place_of(each) for each in announced if protocols[each.partition("://")[0]] == "PLAINTEXT"]
    assert (registered["host"], registered["port"]) == (plain[0] if plain else (None, -1))
    assert registered["version"] == 5
    # Replicas are spread over these, and consumers read from their own.
    assert registered["rack"] == properties(broker)["broker.rack"]


def test_all_brokers_follow_the_registered_controller(zookeeper, cluster):
    controller = json.loads(zookeeper.get("/controller")[0])["brokerid"]
    statuses = [status(broker) for broker in cluster.brokers()]
    assert {found["controller_id"] for found in statuses} == {controller}
    assert [found["broker_id"] for found in statuses if found["is_controller"]] == [controller]


def test_all_brokers_are_of_the_registered_cluster(zookeeper, cluster):
    cluster_id = json.loads(zookeeper.get("/cluster/id")[0])["id"]
    assert {status(broker)["cluster_id"] for broker in cluster.brokers()} == {cluster_id}
