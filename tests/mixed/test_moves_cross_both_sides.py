"""Partitions move between Apache Kafka's brokers and Landline's; either side's controller ends what the other began."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka.cimpl import NewTopic

from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.store import NoNodeError
from broker.zookeeper.znodes import TopicAssignment
from rig.topics import await_leaders
from rig.wait import wait_until
from tests.mixed.clients import read, write
from tests.mixed.cluster import CALL_TIMEOUT_S, KAFKA, LANDLINE, MixedCluster
from tests.support.peers import PeerKind
from tests.support.reassign import Ids, ask_to_move

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
either_side = pytest.mark.parametrize("kind", [KAFKA, LANDLINE], ids=lambda kind: kind.value)


def new_topic(cluster: MixedCluster, *replicas: int) -> str:
    admin, topic = cluster.admin(), f"moved-{uuid.uuid4().hex[:6]}"
    new = NewTopic(topic, 1, replica_assignment=[list(replicas)], config={"min.insync.replicas": "1"})
    admin.create_topics([new])[topic].result(CALL_TIMEOUT_S)
    await_leaders(cluster.bootstrap, topic, 1)
    return topic


def move(cluster: MixedCluster, topic: str, *target: int) -> None:
    partition = TopicPartition(topic, 0)
    controller = cluster.brokers[cluster.controller_id()]
    assert ask_to_move(controller, {partition: target}) == {partition: Errors.NONE}


def assignment(cluster: MixedCluster, topic: str) -> TopicAssignment:
    found = cluster.znodes.topic_assignment(topic)
    assert found is not None
    return found


def await_moved(cluster: MixedCluster, topic: str, target: Ids) -> None:
    def moved() -> bool:
        found, isr = assignment(cluster, topic), cluster.state(topic, 0).isr
        settled = not (found.adding_replicas or found.removing_replicas)
        return settled and found.partitions == {0: target} and set(isr) == set(target)

    wait_until(moved, CALL_TIMEOUT_S, what=lambda: f"{target} hold {topic}: {assignment(cluster, topic)}")
    for broker_id, directory in cluster.log_dirs().items():
        wait_until(
            lambda at=directory / f"{topic}-0", wanted=broker_id in target: at.exists() is wanted,  # type: ignore[misc]
            CALL_TIMEOUT_S,
            what=f"broker {broker_id} has what it should of {topic}",
        )


def force_controller(cluster: MixedCluster, broker_id: int) -> None:
    """As ``MixedCluster.force_controller``, but while a broker is frozen, and so cannot agree."""

    def controls() -> bool:
        holder = cluster.controller_id()
        if holder not in {broker_id, -1}:
            with suppress(NoNodeError):
                cluster.znodes.store.delete(znodes.CONTROLLER)
        return holder == broker_id

    wait_until(controls, CALL_TIMEOUT_S, 0.2, f"broker {broker_id} controls")


@either_side
def test_a_partition_moves_from_kafka_to_landline_and_back_by_a_controller_of_either_side(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    cluster = one_kafka
    cluster.force_controller(kind)
    (kafka,), (first, second) = cluster.ids_of(KAFKA), cluster.ids_of(LANDLINE)
    topic = new_topic(cluster, kafka)
    values = []
    for target in ((first, second), (kafka, second), (kafka,)):
        values += [str(n) for n in range(len(values), len(values) + 50)]
        assert not write(cluster.bootstrap, topic, 0, values[-50:])
        move(cluster, topic, *target)
        await_moved(cluster, topic, target)
    assert read(cluster.bootstrap, topic, 0) == list(enumerate(values))


@either_side
def test_a_controller_of_either_side_finishes_a_move_and_a_cancellation_that_the_other_began(
    one_kafka: MixedCluster, kind: PeerKind
) -> None:
    """``kind`` is the side that finishes."""
    cluster = one_kafka
    (kafka,), (landline, frozen) = cluster.ids_of(KAFKA), cluster.ids_of(LANDLINE)
    began, finishes = (landline, kafka) if kind is KAFKA else (kafka, landline)
    cluster.force_controller(cluster.kinds[began])
    force_controller(cluster, began)
    moved, cancelled = new_topic(cluster, kafka, landline), new_topic(cluster, kafka, landline)
    for topic in (moved, cancelled):
        assert not write(cluster.bootstrap, topic, 0, ["before"])
    cluster.brokers[frozen].freeze()
    try:
        for topic in (moved, cancelled):
            move(cluster, topic, frozen, landline)
            assert assignment(cluster, topic).adding_replicas == {0: (frozen,)}
        # Landline's first step of a cancellation names the broker as added and as removed.
        begun = assignment(cluster, cancelled)
        cluster.znodes.set_topic_assignment(cancelled, replace(begun, removing_replicas={0: (frozen,)}))
        force_controller(cluster, finishes)
    finally:
        cluster.brokers[frozen].thaw()
    await_moved(cluster, moved, (frozen, landline))
    await_moved(cluster, cancelled, tuple(b for b in begun.partitions[0] if b != frozen))
    for topic in (moved, cancelled):
        # The thawed broker may tell clients of the old leader for a moment.
        wait_until(
            lambda at=topic: read(cluster.bootstrap, at, 0) == [(0, "before")],  # type: ignore[misc]
            CALL_TIMEOUT_S,
            what=f"{topic} is read",
        )
