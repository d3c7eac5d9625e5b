"""What a deployment reads of a ZooKeeper before anything of ours is on the host: which brokers are registered."""

import json

import pytest
from kazoo.client import KazooClient

from tests.support.deploy_code import load

tree = load("plugins/module_utils/zookeeper_tree.py")
quorum_info = load("plugins/modules/zookeeper_quorum_info.py")

KAFKA = {
    "features": {},
    "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    "endpoints": ["PLAINTEXT://kafka-7:9092"],
    "jmx_port": -1,
    "port": 9092,
    "host": "kafka-7",
    "version": 5,
    "timestamp": "1700000000000",
}


@pytest.fixture
def registrations(zookeeper):
    """Registers a broker below a chroot of its own, and the zookeeper.connect that leads there."""
    connect = zookeeper.chroot()
    chroot = connect.removeprefix(zookeeper.connect_string)
    client = KazooClient(zookeeper.connect_string, timeout=10)
    client.start(30)
    yield (
        lambda broker_id, text: client.create(
            f"{chroot}/brokers/ids/{broker_id}", text.encode(), ephemeral=True, makepath=True
        ),
        connect,
    )
    client.stop()
    client.close()


def test_registered_brokers_are_read_with_their_endpoints(registrations):
    register, connect = registrations
    states = quorum_info.ask_all(connect, 30)
    assert quorum_info.ask_for_brokers(connect, states) == {}  # not even /brokers is there
    for broker_id in (7, 1001):
        register(broker_id, json.dumps(KAFKA))
    assert quorum_info.ask_for_brokers(connect, states) == {
        "7": {"endpoints": ["PLAINTEXT://kafka-7:9092"], "speaks_by": ""},
        "1001": {"endpoints": ["PLAINTEXT://kafka-7:9092"], "speaks_by": ""},
    }


def test_a_server_that_cannot_be_asked_says_nothing_of_brokers(registrations):
    register, connect = registrations
    register(7, "no JSON")
    states = quorum_info.ask_all(connect, 30)
    assert quorum_info.ask_for_brokers(connect, states) is None
    assert quorum_info.ask_for_brokers(connect, dict.fromkeys(states, "silent")) is None


def test_the_controller_is_read_where_there_is_one(registrations, zookeeper):
    _, connect = registrations
    address = next(iter(quorum_info.servers_in(connect).values()))
    chroot = quorum_info.chroot_in(connect)
    assert tree.controller_id(*address, chroot) is None
    client = KazooClient(zookeeper.connect_string, timeout=10)
    client.start(30)
    try:
        client.create(f"{chroot}/controller", b'{"version":2,"brokerid":7}', makepath=True)
        assert tree.controller_id(*address, chroot) == 7
    finally:
        client.stop()
        client.close()
