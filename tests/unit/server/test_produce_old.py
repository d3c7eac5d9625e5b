"""What Produce 0 to 2 converts, and what it answers without a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import PartitionResponse
from broker.record.header import iter_batches
from broker.record.message_set import write_message
from broker.record.validator import BatchRules
from broker.server.apis.produce_old import converted
from broker.utils.topic_partition import TopicPartition
from tests.support.times import NOW_MS

RULES = BatchRules(1 << 20)


@dataclass
class Broker:
    """The leader of partition 0 of topic t, which notes whose messages were judged."""

    rules: BatchRules = RULES
    judged: list[TopicPartition] = field(default_factory=list)

    @property
    def replica_manager(self) -> Broker:
        return self

    @property
    def metadata_cache(self) -> Broker:
        return self

    def contains_partition(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.partition == 1

    def absence(self, _topic_partition: TopicPartition) -> KafkaError:
        return KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)

    def partition(self, topic_partition: TopicPartition) -> SimpleNamespace | None:
        if topic_partition != TopicPartition("t", 0):
            return None
        return SimpleNamespace(
            require_leader=lambda: self.judged.append(topic_partition), log=SimpleNamespace(rules=self.rules)
        )

    def append_refused(self, _topic_partition: TopicPartition, error: KafkaError) -> PartitionResponse:
        return PartitionResponse(error.error_code)


def messages(count: int, size: int = 100) -> memoryview:
    out = bytearray()
    for offset in range(count):
        write_message(out, 1, offset, NOW_MS, None, bytes(size))
    return memoryview(out)


def run(broker: Broker, *rows: tuple[int, memoryview | None]) -> tuple[list[Any], dict[int, Errors]]:
    """The records of each row afterwards, and the errors by partition."""
    ((_, partitions),), verified = converted([("t", list(rows))], {"t"}, broker)  # type: ignore[arg-type]
    return (
        [records for _, records in partitions],
        {each.partition: response.error for each, response in verified.refused.items()},
    )


def test_messages_become_one_batch() -> None:
    (records,), told = run(Broker(), (0, messages(3)))
    assert [header.record_count for header in iter_batches(records)] == [3]
    assert told == {}


def test_several_messages_for_a_partition_that_is_elsewhere_are_told_so() -> None:
    """They look like several batches, which would be another error, and one that old producers do not retry."""
    records, told = run(Broker(), (1, messages(3)), (2, messages(3)))
    assert [len(each) for each in records] == [0, 0]
    assert told == {1: Errors.NOT_LEADER_OR_FOLLOWER, 2: Errors.UNKNOWN_TOPIC_OR_PARTITION}


def test_nothing_is_converted_for_a_partition_that_is_named_twice() -> None:
    broker = Broker()
    records, told = run(broker, (0, messages(3)), (0, messages(3)))
    assert ([len(each) for each in records], told) == ([0, 0], {})
    assert broker.judged == []
