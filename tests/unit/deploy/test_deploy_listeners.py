"""By which listeners a deployment has brokers speak, and what it refuses: the filters and what its modules look at."""

import os
import socket
import struct
import threading
from contextlib import contextmanager, suppress

import pytest

from tests.support.deploy_code import load
from tests.unit.deploy.test_deploy_filters import BOTH as BOTH_LISTENERS
from tests.unit.deploy.test_deploy_filters import SETTINGS, filters

listeners = load("plugins/filter/broker_listeners.py")
security = load("plugins/filter/broker_security.py")
listening = load("plugins/module_utils/listening.py")
tree = load("plugins/module_utils/zookeeper_tree.py")
zookeeper_words = load("plugins/module_utils/zookeeper_words.py")
instances = load("plugins/modules/broker_instances_info.py")
reach = load("plugins/modules/broker_reach_info.py")
quorum_info = load("plugins/modules/zookeeper_quorum_info.py")

ONE = "advertised.listeners=PLAINTEXT://a:9092"
BOTH = ONE + ",BROKER://a:9091\ninter.broker.listener.name=PLAINTEXT"
OVER = BOTH.replace("name=PLAINTEXT", "name=BROKER")


@pytest.mark.parametrize(
    ("own", "others", "at_first", "then"),
    [
        ("", ["", ""], "BROKER", "BROKER"),  # a new cluster
        ("", ["", None], "PLAINTEXT", "PLAINTEXT"),  # or not: nobody looked at one of the hosts
        (ONE, [ONE, ONE], "PLAINTEXT", "PLAINTEXT"),
        (BOTH, [BOTH, ONE], "PLAINTEXT", "PLAINTEXT"),
        (BOTH, [BOTH, None], "PLAINTEXT", "PLAINTEXT"),
        (BOTH, [BOTH, BOTH], "PLAINTEXT", "BROKER"),
        (BOTH, [BOTH, OVER], "PLAINTEXT", "BROKER"),  # a run that died on its way
        (OVER, [None, ONE], "BROKER", "BROKER"),  # never back
        ("", [OVER, None], "BROKER", "BROKER"),  # a new host
        ("", [BOTH, BOTH], "PLAINTEXT", "BROKER"),
        ("", [ONE, ONE], "PLAINTEXT", "PLAINTEXT"),
        (BOTH, [BOTH, BOTH + "\n" + ONE], "PLAINTEXT", "PLAINTEXT"),  # two brokers, one of them not rolled
        (BOTH, [BOTH, ONE + ",ADMIN_BROKER://a:7001"], "PLAINTEXT", "PLAINTEXT"),
    ],
)
def test_brokers_speak_by_their_own_listener_when_all_have_it(own, others, at_first, then):
    hosts = [{"inventory_hostname": "own", "broker_listeners": {"stdout": own}}]
    for place, text in enumerate(others):
        look = {} if text is None else {"broker_listeners": {"stdout": text}}
        hosts.append({"inventory_hostname": f"h{place}", **look})
    wanted = security.broker_wanted("none", [], 9091)
    assert security.broker_plan(hosts, "own", wanted, False)["between"] == at_first
    assert security.broker_plan(hosts, "own", wanted, True)["between"] == then


@pytest.mark.parametrize(
    ("properties", "port"),
    [
        ({}, 9091),
        ({"num.partitions": 3, "inter.broker.listener.name": "PLAINTEXT"}, 9091),
        ({"listeners": "PLAINTEXT://:7000"}, 0),
        ({"advertised.listeners": ["PLAINTEXT://a:7000", "OUTSIDE://b:7001"]}, 0),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, 0),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, 0),
        ({"listeners": "PLAINTEXT://:7000,BROKER://:7001"}, 9091),
        ({"listeners": ["PLAINTEXT://:7000", "broker://:7001"]}, 9091),
        ({"listeners": "PLAINTEXT://:7000,ADMIN_BROKER://:7001"}, 0),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT"}, 0),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT, BROKER:PLAINTEXT"}, 9091),
    ],
)
def test_who_names_listeners_has_those_and_no_other(properties, port):
    assert listeners.broker_own_port("9091", properties) == port
    assert listeners.broker_own_port(0, properties) == 0


LISTENER_LINE = "inter.broker.listener.name=BROKER"
KAFKA = {"endpoints": ["PLAINTEXT://kafka-7:9092"]}
OURS = {"endpoints": ["PLAINTEXT://a:9092", "BROKER://a:9091"]}


def strangers(registered, port=9091, **variables):
    """What is said of brokers that one of two hosts saw registered, where the inventory has the brokers 1 and 2."""
    hosts = [{"inventory_hostname": name, **variables} for name in ("a", "b")]
    seen = [{"registered": None}, {"registered": registered}]
    return listeners.broker_strangers(hosts, port, seen, filters.broker_ids(hosts))


def test_brokers_beside_the_inventorys_that_would_not_be_reached_are_named():
    assert strangers({"1": OURS, "7": KAFKA, "12": {"endpoints": []}}) == [
        "broker 7 at PLAINTEXT://kafka-7:9092",
        "broker 12 at no address",
    ]


@pytest.mark.parametrize(
    ("registered", "variables"),
    [
        (None, {}),  # ZooKeeper is yet to come
        ({}, {}),
        ({"1": KAFKA, "2": KAFKA}, {}),  # the inventory's own get it
        ({"7": OURS}, {}),
        ({"7": KAFKA}, {"broker_internal_port": 0}),
        ({"7": KAFKA}, {"broker_properties": {"inter.broker.listener.name": "PLAINTEXT"}}),
        ({"7": KAFKA}, {"broker_properties": {"listeners": "PLAINTEXT://:9092"}}),
    ],
)
def test_a_deployment_goes_on_beside_brokers_that_are_reached(registered, variables):
    assert strangers(registered, **variables) == []


@pytest.mark.parametrize(
    ("hosts", "port", "lacks"),
    [
        ([{}, {}], 9091, False),
        ([{}, {}], 0, True),
        ([{}, {"broker_internal_port": "0"}], 9091, True),
        ([{"broker_internal_port": 9091}], 0, False),
        ([{"broker_properties": {"listeners": "PLAINTEXT://:7000"}}], 9091, True),
        ([], 0, False),
    ],
)
def test_whether_brokers_of_a_host_are_to_have_one_listener_is_known_by_its_variables(hosts, port, lacks):
    assert listeners.broker_any_without_own(hosts, port) is lacks


@pytest.mark.parametrize(
    ("hosts", "speaks"),
    [
        ([{}, {"broker_speak": {"skipped": True}}, {"broker_quorum_looked": {"registered": None}}], False),
        ([{"broker_speak": {"stdout": ""}}, {"broker_speak": {"stdout": LISTENER_LINE}}], True),
        ([{"broker_quorum_looked": {"registered": {"3": {**OURS, "speaks_by": "PLAINTEXT"}}}}], False),
        (
            [{"broker_quorum_looked": {"registered": {"2": KAFKA, "3": {**OURS, "speaks_by": "BROKER"}}}}],
            True,
        ),
    ],
)
def test_that_brokers_speak_by_their_own_listener_is_known_by_files_and_by_registrations(hosts, speaks):
    assert listeners.broker_speaks_between(hosts) is speaks


def brokers_of(host, first_id, count=1, **changed):
    settings = {**SETTINGS, **BOTH_LISTENERS, "advertised_host": host, **changed}
    return filters.broker_instances({**settings, "first_id": first_id, "count": count})


def ports(**changed):
    return listeners.broker_ports(brokers_of("192.0.2.1", 1, 2, **changed))


def test_all_that_a_host_listens_on_is_known_with_what_sets_it():
    assert [(each["port"], each["for"], each["set_by"]) for each in ports()] == [
        (9092, "the listener PLAINTEXT of broker 1", "broker_kafka_port"),
        (9091, "the listener BROKER of broker 1", "broker_internal_port"),
        (8092, "HTTP of broker 1", "broker_http_port"),
        (9102, "the listener PLAINTEXT of broker 2", "broker_kafka_port"),
        (9101, "the listener BROKER of broker 2", "broker_internal_port"),
        (8102, "HTTP of broker 2", "broker_http_port"),
    ]
    assert listeners.broker_port_clashes(ports()) == []


def test_two_brokers_of_a_host_do_not_get_one_port():
    (clash,) = listeners.broker_port_clashes(ports(port_step=1))
    assert clash == (
        "port 9092 is wanted for the listener PLAINTEXT of broker 1 and for the listener BROKER of broker 2: another "
        "one is set by broker_kafka_port or broker_internal_port, or broker_port_step"
    )


def test_a_port_that_another_process_has_is_told_of_with_its_process():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = listening.who_is_in_the_way("", port, "landline-broker@")
        wanted = [{**each, "port": port} for each in ports() if each["set_by"] == "broker_internal_port"]
        told = instances.taken_ports(wanted, ["landline-broker@2.service"])
    assert words.endswith(f", process {os.getpid()}")
    place = f"port {port} for the listener BROKER of broker 2"
    assert told == [f"{place} is in use by {words}: another one is set by broker_internal_port"]
    assert listening.who_is_in_the_way("", port, "landline-broker@") is None


def test_a_port_that_a_broker_of_the_host_has_is_a_brokers(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port, inode = other.getsockname()[1], os.fstat(other.fileno()).st_ino
        (tmp_path / "net").mkdir()
        row = (
            f"0: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {inode} 1\n"
        )
        (tmp_path / "net" / "tcp").write_text(f"head\n{row}")
        process = tmp_path / "812"
        (process / "fd").mkdir(parents=True)
        (process / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (process / "comm").write_text("landline\n")
        (process / "cgroup").write_text("0::/system.slice/landline-broker@2.service\n")
        assert listening.who_is_in_the_way("", port, "landline-broker@", tmp_path) is None
        (process / "cgroup").write_text("0::/system.slice/my-landline-broker@2.service\n")
        assert listening.who_is_in_the_way("", port, "landline-broker@", tmp_path) == "landline, process 812"
        (process / "cgroup").write_text("0::/system.slice/kafka.service\n")
        assert listening.who_is_in_the_way("", port, "landline-broker@", tmp_path) == "landline, process 812"


A, B, C = "192.0.2.1:9091", "192.0.2.2:9091", "192.0.2.3:9091"


def hosts_that_saw(**unreached):
    return [
        {
            "inventory_hostname": name,
            "broker_all": brokers_of(f"192.0.2.{number}", number),
            "broker_reached": {"unreached": unreached.get(name, {})},
        }
        for number, name in enumerate("abc", 1)
    ]


def test_the_brokers_own_listeners_are_looked_for_where_they_are_advertised():
    assert listeners.broker_addresses(hosts_that_saw()) == [A, B, C]
    assert listeners.broker_addresses([{"broker_all": filters.broker_instances(SETTINGS)}, {}]) == []


def test_the_brokers_own_listeners_at_ipv6_are_looked_for_and_told_of_in_brackets():
    one = {
        "inventory_hostname": "a",
        "broker_all": brokers_of("2001:db8::1", 1),
        "broker_reached": {"unreached": {"[2001:db8::1]:9091": "No route to host"}},
    }
    assert listeners.broker_addresses([one]) == ["[2001:db8::1]:9091"]
    assert listeners.broker_unreached([one], True) == [
        "a cannot connect to broker 1 on a at [2001:db8::1]:9091 (No route to host)"
    ]


def test_a_firewall_is_told_of_with_both_hosts_the_address_and_the_port():
    closed = hosts_that_saw(a={B: "no answer within 4 s"}, c={B: "No route to host"})
    for all_are_up in (True, False):
        assert listeners.broker_unreached(closed, all_are_up) == [
            f"a cannot connect to broker 2 on b at {B} (no answer within 4 s)",
            f"c cannot connect to broker 2 on b at {B} (No route to host)",
        ]
    assert listeners.broker_unreached(hosts_that_saw(), True) == []


def test_a_broker_that_is_down_is_no_firewalls_doing_but_nobody_goes_over_without_it():
    down = hosts_that_saw(**{name: {C: "Connection refused"} for name in "abc"})
    assert listeners.broker_unreached(down, False) == []
    assert len(listeners.broker_unreached(down, True)) == 3


def test_what_is_not_reached_is_told_with_its_reason():
    with socket.create_server(("127.0.0.1", 0)) as other:
        there = f"127.0.0.1:{other.getsockname()[1]}"
        assert reach.unreached([there, there], 2, 0) == {}
    assert reach.unreached([there], 2, 0) == {there: "Connection refused"}
    assert reach.unreached([], 2, 0) == {}


def test_who_is_restarted_meanwhile_is_reached(monkeypatch):
    reasons = ["Connection refused", "Connection refused", ""]
    monkeypatch.setattr(reach, "PAUSE_S", 0)
    monkeypatch.setattr(reach, "attempt", lambda *_: reasons.pop(0))
    assert reach.unreached([A], 2, 60) == {}
    assert reasons == []


def test_the_chroot_is_what_follows_the_servers():
    assert zookeeper_words.chroot_in("a:2181,b:2181/kafka/one/") == "/kafka/one"
    assert zookeeper_words.chroot_in("a:2181") == ""


@contextmanager
def one_that_answers(data):
    """A server that has one peer, sends it that, and hears it to its end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection, suppress(OSError):  # the peer may have heard enough
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join()


def brokers_told_by(data):
    """What is known of registered brokers where ZooKeeper answers that."""
    with one_that_answers(data) as address:
        connect = "{}:{}".format(*address)
        return quorum_info.ask_for_brokers(connect, {connect: "serves"})


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">iiiqi", 37, 0, 0, 0, 16) + bytes(17),  # a session that has expired
    ],
    ids=["nothing", "another protocol", "no session"],
)
def test_what_is_no_zookeeper_is_an_error(answer):
    with one_that_answers(answer) as address, pytest.raises(tree.TreeError):
        tree.registered_brokers(*address, "")


def answers(*bodies):
    """What a server of ZooKeeper's sends when a session is begun, and to each question then."""
    begun = struct.pack(">iiqi16s", 0, 6000, 1, 16, bytes(16))
    told = (struct.pack(">iqi", number, 1, 0) + body for number, body in enumerate(bodies, 1))
    return b"".join(struct.pack(">i", len(each)) + each for each in (begun, *told))


def node(text):
    return struct.pack(">i", len(text)) + text + bytes(68)


ONE_BROKER = struct.pack(">ii", 1, 1) + b"7"


@pytest.mark.parametrize(
    "bodies",
    [
        [b"\0\0"],  # shorter than a number of children
        [struct.pack(">ii", 2, 1) + b"7"],  # of whom one is missing
        [struct.pack(">ii", 2**31 - 1, -4)],  # for ever at one place
        [struct.pack(">ii", 1, 2**30) + b"7"],
        [ONE_BROKER, b"\0"],
        [ONE_BROKER, node(b"[1]")],
        [ONE_BROKER, node(b'{"endpoints": 9}')],
        [ONE_BROKER, node(b'{"endpoints": {"a": 1}}')],
        [ONE_BROKER, node(b"[" * 200_000)],
        [struct.pack(">ii", 1, 1) + b"x", node(b"{}")],  # an id that is none
    ],
)
def test_a_zookeeper_that_answers_nonsense_says_nothing_of_brokers(bodies):
    assert brokers_told_by(answers(*bodies)) is None


def test_a_zookeeper_that_tells_its_brokers_is_read():
    bodies = [ONE_BROKER, node(b'{"endpoints": ["PLAINTEXT://a:9092"]}')]
    assert brokers_told_by(answers(*bodies)) == {"7": {"endpoints": ["PLAINTEXT://a:9092"], "speaks_by": ""}}
    bodies = [ONE_BROKER, node(b'{"endpoints": [], "landline_inter_broker_listener": "BROKER"}')]
    assert brokers_told_by(answers(*bodies)) == {"7": {"endpoints": [], "speaks_by": "BROKER"}}


def test_an_address_that_is_none_is_told_of():
    name = "a" * 70  # longer than a part of a name may be
    assert reach.unreached([f"{name}.b:9091"], 1, 0).keys() == {f"{name}.b:9091"}
    assert (
        listening.who_is_in_the_way("", 99999, "landline-broker@") is None
    )  # the configuration is judged elsewhere


def test_a_running_broker_knows_the_servers_in_its_properties(tmp_path):
    lines = "broker.id=1\nzookeeper.connect=[fd00\\:\\:1]\\:2181,kafka-b:2181/kafka\n"
    (tmp_path / "broker-1.properties").write_text(lines)
    (tmp_path / "broker-2.properties").write_text("broker.id=2\n")
    units = [f"landline-broker@{number}.service" for number in (1, 2, 3)]
    assert quorum_info.servers_named(str(tmp_path), units) == {units[0]: ["[fd00::1]:2181", "kafka-b:2181"]}
