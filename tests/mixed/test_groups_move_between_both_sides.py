"""Consumer groups whose coordinator moves from Apache Kafka to Landline and back."""

from __future__ import annotations

import threading
import uuid

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ConsumerPartition

from rig.wait import wait_until
from tests.mixed.cluster import CALL_TIMEOUT_S, KAFKA, LANDLINE, OFFSETS_TOPIC, MixedCluster
from tests.support.peers import PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
SESSION_TIMEOUT_MS = 45_000


def offsets_partition(group: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that holds the group: Java's hash of its name."""
    code = 0
    for character in group:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partitions


def group_coordinated_by(cluster: MixedCluster, kind: PeerKind) -> str:
    """A new group whose coordinator is a broker of that kind now."""
    cluster.elect_preferred(OFFSETS_TOPIC)
    led = {tp.partition: cluster.kinds[state.leader] for tp, state in cluster.states([OFFSETS_TOPIC]).items()}
    assert kind in led.values(), led
    while True:
        group = f"group-{uuid.uuid4().hex[:6]}"
        if led[offsets_partition(group, len(led))] is kind:
            return group


def coordinator(cluster: MixedCluster, group: str) -> int:
    return cluster.state(OFFSETS_TOPIC, offsets_partition(group, len(cluster.states([OFFSETS_TOPIC])))).leader


class Member:
    """A consumer on a thread of its own that only stays in its group; counts what it was assigned and lost."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.assigned: list[int] = []
        self.lost = 0
        self._topic = topic
        self._stop = threading.Event()
        self._wanted: int | None = None
        config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer(
            {**config, "session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 300}
        )
        self._consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_loss, on_lost=self._on_loss
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_assign(self, _: Consumer, partitions: list[ConsumerPartition]) -> None:
        self.assigned.append(len(partitions))

    def _on_loss(self, *_: object) -> None:
        self.lost += not self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.1)
            if self._wanted is not None and self._commit(self._wanted):
                self._wanted = None

    def _commit(self, offset: int) -> bool:
        """Commits as the member that it is; False while the coordinator is on its way."""
        try:
            answers = self._consumer.commit(
                offsets=[ConsumerPartition(self._topic, 0, offset)], asynchronous=False
            )
        except KafkaException:
            return False
        return bool(answers) and all(answer.error is None for answer in answers)

    def commit(self, offset: int) -> None:
        """Has the offset of partition 0 committed; returns when it is."""
        self._wanted = offset
        wait_until(lambda: self._wanted is None, CALL_TIMEOUT_S, what=f"offset {offset} is committed")

    def close(self) -> None:
        self._stop.set()
        self._thread.join(CALL_TIMEOUT_S)
        assert not self._thread.is_alive(), "the member's last call did not return"
        self._consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The group's committed offset of partition 0, asked anew."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([ConsumerPartition(topic, 0)], timeout=CALL_TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()


def test_a_group_keeps_its_member_and_offsets_while_its_coordinator_moves_to_the_other_side_and_back(
    one_kafka: MixedCluster,
) -> None:
    """Generation and member are read from the log by either coordinator: nobody has to join again."""
    cluster, topic = one_kafka, f"moved-{uuid.uuid4().hex[:6]}"
    cluster.create_topic(topic)
    group = group_coordinated_by(cluster, KAFKA)
    member = Member(cluster.bootstrap, topic, group)
    try:
        wait_until(lambda: member.assigned == [3], CALL_TIMEOUT_S, what="the member has all partitions")
        seen = []
        for number in (1, 2, 3):
            seen.append(cluster.kinds[coordinator(cluster, group)])
            member.commit(100 * number)
            if number < 3:
                cluster.bounce(coordinator(cluster, group))
                cluster.await_in_sync([OFFSETS_TOPIC, topic])
            assert committed(cluster.bootstrap, group, topic) == 100 * number
        assert seen == [KAFKA, LANDLINE, KAFKA], seen
        assert (member.assigned, member.lost) == ([3], 0), "the group was rebalanced"
    finally:
        member.close()
