"""A fetch that waits is tried at each append: it compares positions, and reads nothing."""

from __future__ import annotations

import itertools
import threading
import uuid
from dataclasses import dataclass

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.log import Log
from broker.protocol.errors import Errors, KafkaError
from broker.replication.delayed_fetch import DelayedFetch, FetchEntry, FetchParams
from broker.utils.topic_partition import TopicPartition
from tests.support.logs import batch, open_log

TP = TopicPartition("t", 0)
WHOLE = 1 << 20


@dataclass
class Led:
    """A partition as far as a waiting fetch looks at it."""

    log: Log
    is_leader: bool = True

    def require_leader(self, _epoch: int = -1, *, or_follower: bool = False) -> None:
        if not self.is_leader and not or_follower:
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)


class Waiter:
    """A follower that waits at ``offset`` for ``min_bytes``, asking for at most ``max_bytes``."""

    def __init__(self, led: Led, offset: int, min_bytes: int, max_bytes: int = WHOLE) -> None:
        self.answers = 0
        entries = [FetchEntry(TP, uuid.UUID(int=0), offset, max_bytes)]
        params = FetchParams(1, -1, 1000, min_bytes, WHOLE)
        self.fetch = DelayedFetch(params, entries, lambda _: led, self._answer)  # type: ignore[arg-type,return-value]

    def _answer(self) -> None:
        self.answers += 1

    def is_answered(self) -> bool:
        self.fetch.try_complete()
        return self.answers == 1


@pytest.fixture
def led(tmp_path) -> Led:
    return Led(open_log(tmp_path, LogConfig(segment_bytes=10_000)))


def size_of_one(led: Led) -> int:
    return led.log.append_as_leader(batch(b"v" * 100), 0).size_bytes


def test_answer_comes_with_the_append_that_makes_the_bytes_full(led: Led) -> None:
    size = size_of_one(led)
    waiter = Waiter(led, led.log.log_end_offset, 3 * size)
    for _ in range(2):
        assert not waiter.is_answered()
        size_of_one(led)
    assert not waiter.is_answered()
    size_of_one(led)
    assert waiter.is_answered()


def test_a_partition_counts_no_more_than_it_may_send(led: Led) -> None:
    size = size_of_one(led)
    waiter = Waiter(led, 0, 3 * size, max_bytes=2 * size)
    for _ in range(5):
        size_of_one(led)
        assert not waiter.is_answered()


def test_a_fetch_in_a_segment_that_was_rolled_is_answered_at_once(led: Led) -> None:
    size_of_one(led)
    waiter = Waiter(led, 0, WHOLE)
    assert not waiter.is_answered()
    led.log.roll()
    size_of_one(led)
    assert waiter.is_answered()


def test_a_fetch_that_waits_at_the_end_goes_on_waiting_in_the_next_segment(led: Led) -> None:
    size = size_of_one(led)
    waiter = Waiter(led, led.log.log_end_offset, 2 * size)
    led.log.roll()
    size_of_one(led)
    assert not waiter.is_answered()
    size_of_one(led)
    assert waiter.is_answered()


def test_a_partition_that_is_led_elsewhere_is_told_of(led: Led) -> None:
    waiter = Waiter(led, 0, WHOLE)
    led.is_leader = False
    assert waiter.is_answered()


def test_waiting_costs_no_look_into_the_files(led: Led, monkeypatch) -> None:
    for _ in range(3):
        size_of_one(led)
    waiters = [Waiter(led, led.log.log_end_offset, WHOLE) for _ in range(50)]
    looks: list[int] = []

    def counted(segments: look_ups.SegmentList, offset: int, *_: object) -> None:
        looks.append(offset)

    monkeypatch.setattr(look_ups, "place_of", counted)
    monkeypatch.setattr(look_ups, "read_scanning", counted)
    for _ in range(20):
        size_of_one(led)
        assert not any(waiter.is_answered() for waiter in waiters)
    assert looks == []


def test_place_is_that_of_the_batch_wherever_it_lies(led: Led) -> None:
    sizes = [size_of_one(led) for _ in range(200)]
    found = [led.log.reader.place_of(offset) for offset in range(201)]
    assert len({place[0] for place in found if place is not None}) == led.log.num_segments > 1
    assert found[0] == (0, 0)
    assert found[1] == (0, sizes[0])
    for before, after in itertools.pairwise(found):
        assert before is not None
        assert after is not None
        assert after == (before[0], before[1] + sizes[0]) or after[1] == 0


def test_records_are_searched_for_a_time_without_the_logs_lock(led: Led, monkeypatch) -> None:
    """A batch may take seconds; whoever appends must not wait for it."""
    led.log.append_as_leader(batch(b"a", b"b", timestamp=5), 0)
    held: list[bool] = []
    real = look_ups.records_body

    def counted(*args: object) -> object:
        def try_it() -> None:
            held.append(not led.log.lock.acquire(blocking=False))
            if not held[-1]:
                led.log.lock.release()

        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(look_ups, "records_body", counted)
    found = led.log.offset_for_timestamp(5)
    assert found is not None
    assert found.offset == 0
    assert held == [False]


def test_search_for_a_time_ends_with_the_record_that_is_found(led: Led, monkeypatch) -> None:
    led.log.append_as_leader(batch(*[b"v"] * 300, timestamp=5), 0)
    seen = 0
    real = look_ups.decode_records

    def counted(*args: object):
        nonlocal seen
        for record in real(*args):  # type: ignore[arg-type]
            seen += 1
            yield record

    monkeypatch.setattr(look_ups, "decode_records", counted)
    assert led.log.offset_for_timestamp(5) is not None
    assert seen == 1
