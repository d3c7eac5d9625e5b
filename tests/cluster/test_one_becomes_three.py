"""A cluster of one host becomes one of three, as documented, in a lab of this test's own."""

import os

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from lab import Lab
from rig.wait import wait_until
from tests.support.deploying import make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import assert_no_trace, skip_without_hosts
from tests.support.numbered_load import NumberedLoad, numbers_in

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

TOPIC, PARTITIONS = "kept", 3


@pytest.fixture
def name():
    skip_without_hosts()
    name = f"t-grows-{os.getpid()}"
    try:
        yield name
    finally:
        make("cluster-down", f"LAB={name}")
    assert_no_trace(name)


def identity(bootstrap, address):
    """The cluster's id as its tree has it, and the ids of its topics."""
    topics = set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)
    client = KazooClient(f"{address}:2181", timeout=10)
    client.start(30)
    try:
        found = client.get("/cluster/id")[0], client.get(f"/brokers/topics/{TOPIC}")[0]
    finally:
        client.stop()
        client.close()
    return *found, topics


def test_a_cluster_of_one_host_becomes_one_of_three_and_keeps_its_id_its_topics_and_their_records(name):
    make("cluster-up", f"LAB={name}", "HOSTS=1")
    lab = Lab(name)
    (first,) = lab.hosts
    bootstrap = f"{first.address}:{BROKER_PORT}"
    with lab.inside():
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], operation_timeout=30)[TOPIC].result(60)
        with NumberedLoad(bootstrap, TOPIC, PARTITIONS, pause_s=0.002) as load:
            wait_until(lambda: len(load.acked) > 500, 120)
        before = identity(bootstrap, first.address)
    make("cluster-up", f"LAB={name}", "HOSTS=3")  # which runs the smoke tests
    with lab.inside():
        for host in lab.hosts:
            cluster_id, assignment, topics = identity(f"{host.address}:{BROKER_PORT}", host.address)
            assert (cluster_id, assignment) == before[:2]
            assert topics >= before[2]
        assert load.failed == []
        assert numbers_in(bootstrap, TOPIC, PARTITIONS) == load.acked
