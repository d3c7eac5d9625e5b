"""Reads the log and the group's offsets after all clients are done, as a client would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chaos.client_process import COMMON_CONFIG
from chaos.history import Event, GroupOffset, HighWatermark, Stored, StoredRange
from chaos.values import id_of
from rig.wait import wait_until

CALL_TIMEOUT_S = 5.0
READ_RECORDS = 5000
READ_UNCOMMITTED = "read_uncommitted"
T = TypeVar("T")
Settings = Mapping[str, object]
"""librdkafka's, by which a client logs in."""


def read_ends(
    bootstrap: str, topics: Iterable[str], timeout_s: float, settings: Settings | None = None
) -> list[HighWatermark]:
    """Each partition's high watermark, whatever transactions are open below it. Raises TimeoutError when one has no
    leader for this long.
    """
    consumer = _consumer(bootstrap, settings, "ends", READ_UNCOMMITTED)
    try:
        return [end for topic in topics for _, end in _bounds(consumer, topic, timeout_s)]
    finally:
        consumer.close()


def read_final_log(
    bootstrap: str, topics: Iterable[str], timeout_s: float, settings: Settings | None = None
) -> list[Event]:
    """Every record of the topics that is not of an aborted transaction, partition by partition, and the part of
    each partition that was read.

    Raises TimeoutError when a partition cannot be read to its end, for example behind an open transaction.
    """
    bounds = _consumer(bootstrap, settings, "ends", READ_UNCOMMITTED)
    consumer = _consumer(bootstrap, settings, "final-log")
    try:
        return list(_final_log(bounds, consumer, topics, time.monotonic() + timeout_s))
    finally:
        bounds.close()
        consumer.close()


def read_group_offsets(
    bootstrap: str, group: str, topics: Iterable[str], timeout_s: float, settings: Settings | None = None
) -> list[GroupOffset]:
    """The committed offsets of the group, which must have no members any more. Raises TimeoutError."""
    consumer = _consumer(bootstrap, settings, group)
    try:
        found: list[GroupOffset] = []
        for topic in topics:
            asked = [TopicPartition(topic, number) for number in _partitions(consumer, topic, timeout_s)]
            told = _retried(partial(committed_offsets, consumer, asked), timeout_s, f"offsets of {group}")
            found += [GroupOffset(group, each.partition, max(each.offset, -1), topic) for each in told]
        return found
    finally:
        consumer.close()


def committed_offsets(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets of the consumer's group, without those of open transactions. Raises KafkaException."""
    answers: list[TopicPartition] = consumer.committed(asked, timeout=CALL_TIMEOUT_S)
    for each in answers:
        if each.error is not None:
            raise KafkaException(each.error)
    return answers


def _final_log(
    bounds: Consumer, consumer: Consumer, topics: Iterable[str], deadline: float
) -> Iterator[Event]:
    left: dict[tuple[str, int], int] = {}
    starts: list[TopicPartition] = []
    for topic in topics:
        for start, end in _bounds(bounds, topic, deadline - time.monotonic()):
            yield StoredRange(end.partition, start, end.offset, topic)
            if start < end.offset:
                left[topic, end.partition] = end.offset
                starts.append(TopicPartition(topic, end.partition, start))
    consumer.assign(starts)
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not read to the end: {left}")
        for message in consumer.consume(READ_RECORDS, 0.5):
            name, partition, offset = message.topic(), message.partition(), message.offset()
            error = message.error()
            if name is None or partition is None or offset is None or (name, partition) not in left:
                continue
            key, following = (name, partition), offset
            if error is None:
                following = offset + 1
                if offset < left[key]:
                    yield Stored(partition, offset, id_of(message.value() or b""), name)
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                continue
            if following >= left[key]:
                del left[key]


def _bounds(consumer: Consumer, topic: str, timeout_s: float) -> Iterator[tuple[int, HighWatermark]]:
    """Start and end of each partition."""
    for number in _partitions(consumer, topic, timeout_s):
        yield _retried(partial(_bound, consumer, topic, number), timeout_s, f"offsets of {topic}-{number}")


def _bound(consumer: Consumer, topic: str, number: int) -> tuple[int, HighWatermark]:
    began_s = time.monotonic()
    found = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=CALL_TIMEOUT_S)
    if found is None:
        raise TimeoutError(f"no answer about {topic}-{number}")
    start, end = found
    return start, HighWatermark(number, end, began_s, topic)


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    def told() -> list[int]:
        return sorted(consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions)

    return _retried(told, timeout_s, f"partitions of {topic}")


def _retried(ask: Callable[[], T], timeout_s: float, what: str) -> T:
    """Retries until there is an answer; an end offset of 0 is one."""
    return wait_until(lambda: (ask(),), timeout=timeout_s, interval=0.2, what=what)[0]


def _consumer(
    bootstrap: str, settings: Settings | None, group: str, isolation: str = "read_committed"
) -> Consumer:
    own = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error"}
    own |= {"isolation.level": isolation, "enable.partition.eof": True}
    return Consumer({"bootstrap.servers": bootstrap, **COMMON_CONFIG, **own, **(settings or {})})
