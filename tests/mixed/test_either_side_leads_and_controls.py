"""Apache Kafka 3.9.1 and Landline in one cluster: each operation with the controller, or the leader, on either side."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ConsumerPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from rig.brokers import HOST
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.mixed.clients import new_producer_id, partitions_led, read, write
from tests.mixed.cluster import CALL_TIMEOUT_S, KAFKA, LANDLINE, OFFSETS_TOPIC, MixedCluster
from tests.support.peers import PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
either_side = pytest.mark.parametrize("kind", [KAFKA, LANDLINE], ids=lambda kind: kind.value)


def new_name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:6]}"


def until(condition, what):
    wait_until(condition, CALL_TIMEOUT_S, what=what)


@either_side
def test_topics_are_made_grown_changed_and_deleted_by_a_controller_of_either_side(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    cluster = one_kafka
    cluster.force_controller(kind)
    admin, topic = cluster.admin(), new_name("made")
    cluster.create_topic(topic)

    more = NewPartitions(topic, 6, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    admin.create_partitions([more])[topic].result(CALL_TIMEOUT_S)
    for broker in cluster.brokers.values():
        until(
            lambda at=broker: partitions_led(at, topic) == 6, f"{broker.process.title} knows all partitions"
        )
    for number in range(6):
        assert not write(cluster.bootstrap, topic, number, ["before"])

    limit = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("TOPIC", topic, incremental_configs=[limit])
    admin.incremental_alter_configs([resource])[resource].result(CALL_TIMEOUT_S)

    def refuses_large_ones(number: int) -> bool:
        return write(cluster.bootstrap, topic, number, ["x" * 5000]) == [KafkaError.MSG_SIZE_TOO_LARGE]

    for number in range(3):
        until(partial(refuses_large_ones, number), f"the leader of partition {number} heeds the new limit")
        assert read(cluster.bootstrap, topic, number)[0] == (0, "before")

    admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_S)
    until(lambda: not cluster.znodes.topic_exists(topic), "the topic's znode is gone")
    for broker in cluster.brokers.values():
        until(lambda at=broker: partitions_led(at, topic) == 0, f"{broker.process.title} forgets the topic")
        found = partial(broker.log_dir.glob, f"{topic}-[0-9]")
        until(lambda at=found: not [*at()], f"{broker.process.title} has no replica left")


@either_side
def test_the_isr_shrinks_and_grows_through_a_controller_of_either_side(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    """A frozen follower leaves the ISRs of Kafka's and Landline's leaders, and comes back to both."""
    cluster = one_kafka
    controller = cluster.force_controller(kind)
    topic = new_name("frozen")
    cluster.create_topic(topic)
    frozen = next(each for each in cluster.ids_of(LANDLINE) if each != controller)
    led = {leader: number for leader, number in cluster.preferred_leaders(topic).items() if leader != frozen}
    assert {cluster.kinds[leader] for leader in led} == {KAFKA, LANDLINE}
    cluster.brokers[frozen].freeze()
    try:
        for leader, number in led.items():
            alone = cluster.brokers[leader].bootstrap
            assert not write(alone, topic, number, map(str, range(20)), acks="1")
        for number in led.values():
            until(lambda at=number: frozen not in cluster.state(topic, at).isr, f"ISR of {number} shrinks")
    finally:
        cluster.brokers[frozen].thaw()
    cluster.await_in_sync([topic])
    for number in led.values():
        assert read(cluster.bootstrap, topic, number) == [(n, str(n)) for n in range(20)]


@either_side
def test_a_dead_leaders_unreplicated_tail_is_cut_when_it_follows_the_other_side(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    cluster, topic = one_kafka, new_name("cut")
    cluster.create_topic(topic, {"min.insync.replicas": "1"})
    leader = cluster.ids_of(kind)[0]
    number = cluster.preferred_leaders(topic)[leader]
    assert cluster.state(topic, number).leader == leader
    committed = [f"committed-{n}" for n in range(5)]
    assert not write(cluster.bootstrap, topic, number, committed)
    with ExitStack() as stack:
        for other in cluster.brokers.keys() - {leader}:
            cluster.brokers[other].freeze()
            stack.callback(cluster.brokers[other].thaw)
        alone = cluster.brokers[leader].bootstrap
        # The followers' fetches that wait at the leader take this one with them; what comes after it, nobody has.
        assert not write(alone, topic, number, ["fetched"], acks="1")
        assert not write(alone, topic, number, [f"lost-{n}" for n in range(7)], acks="1")
        cluster.brokers[leader].kill()
    cluster.forget(leader)
    until(lambda: cluster.state(topic, number).leader not in (leader, -1), "another leads")
    after = [f"after-{n}" for n in range(3)]
    assert not write(cluster.bootstrap, topic, number, after)
    cluster.brokers[leader].start()
    cluster.await_in_sync([topic, OFFSETS_TOPIC])
    values = [value for _, value in read(cluster.bootstrap, topic, number)]
    assert [value for value in values if value != "fetched"] == [*committed, *after]
    segment = f"{topic}-{number}/{0:020}.log"
    logs = {broker_id: (path / segment).read_bytes() for broker_id, path in cluster.log_dirs().items()}
    assert len(set(logs.values())) == 1, {broker_id: len(data) for broker_id, data in logs.items()}
    assert b"after-2" in logs[leader]
    assert b"lost-" not in logs[leader]


@either_side
def test_records_deleted_at_a_leader_of_one_side_are_gone_wherever_others_lead_next(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    cluster, topic = one_kafka, new_name("purged")
    cluster.create_topic(topic)
    leader = cluster.ids_of(kind)[0]
    number = cluster.preferred_leaders(topic)[leader]
    assert not write(cluster.bootstrap, topic, number, map(str, range(9)))
    place = ConsumerPartition(topic, number, 6)
    admin = cluster.admin()
    assert admin.delete_records([place])[place].result(CALL_TIMEOUT_S).low_watermark == 6
    cluster.brokers[leader].stop()
    assert cluster.state(topic, number).leader != leader
    assert read(cluster.bootstrap, topic, number) == [(n, str(n)) for n in (6, 7, 8)]
    cluster.brokers[leader].start()
    cluster.await_in_sync([topic, OFFSETS_TOPIC])


@either_side
def test_producer_ids_from_a_controller_of_either_side_are_never_the_same(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    """Every broker gives out more than a block of them, so that it must ask this controller."""
    cluster = one_kafka
    cluster.force_controller(kind)
    ids = []
    for broker in cluster.brokers.values():
        with RawClient(HOST, broker.port) as client:
            ask = partial(new_producer_id, client)
            ids += [wait_until(ask, CALL_TIMEOUT_S, 0.01, "a producer id") for _ in range(1100)]
    assert len(set(ids)) == len(ids)
