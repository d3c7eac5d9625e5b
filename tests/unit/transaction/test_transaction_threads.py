"""A coordinator under several threads: a record is written in the leadership in which it was decided, or not at all."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from broker.protocol.errors import Errors
from tests.support.transaction_fakes import T0, T1, T2, Answers, Harness

TIMEOUT_S = 30


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_a_partition_is_given_up_only_when_no_append_to_it_is_under_way(h: Harness) -> None:
    producer = h.producer()
    inside, go_on = threading.Event(), threading.Event()
    append = h.appender.log(0).append

    def slow_append(batch: Any) -> int:
        inside.set()
        assert go_on.wait(TIMEOUT_S)
        return append(batch)

    h.appender.log(0).append = slow_append  # type: ignore[method-assign]
    answers = Answers()
    adding = threading.Thread(target=lambda: answers(h.add(producer)))
    adding.start()
    assert inside.wait(TIMEOUT_S)
    resigning = threading.Thread(target=lambda: h.coordinator.on_resignation(0, 1))
    resigning.start()
    resigning.join(0.2)
    assert resigning.is_alive(), "the append is not over"
    go_on.set()
    for thread in (adding, resigning):
        thread.join(TIMEOUT_S)
    assert h.add(producer, T1) is Errors.NOT_COORDINATOR
    assert h.appender.log(0).log_end_offset == 2


def test_an_answer_that_comes_from_another_thread_during_the_append_is_passed_on_once(h: Harness) -> None:
    """As when a follower's fetch acknowledges the record before the appending thread has released its lock."""
    producer = h.producer()
    for number in range(200):
        h.appender.hold = True
        threads = []

        def acknowledge() -> None:
            while not h.appender.held:
                pass
            h.appender.release()

        threads.append(threading.Thread(target=acknowledge))
        threads[0].start()
        answers = h.adding(producer, T0._replace(partition=number))
        threads[0].join(TIMEOUT_S)
        assert answers.result is Errors.NONE


def test_many_producers_end_their_transactions_at_once(h: Harness) -> None:
    failures: list[str] = []

    def transact(name: str) -> None:
        for _ in range(30):
            producer = h.producer(name=name)
            errors = [h.add(producer, partition, name=name) for partition in (T0, T1, T2)]
            errors.append(h.end(producer, name=name))
            failures.extend(f"{name}: {error.name}" for error in errors if error is not Errors.NONE)

    threads = [threading.Thread(target=transact, args=(f"tx-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert failures == []
    assert {h.state(f"tx-{number}") for number in range(6)} == {"CompleteCommit"}
    assert h.memory.held == h.recounted_bytes()
    assert [len(h.cluster.written[partition]) for partition in (T0, T1, T2)] == [180, 180, 180]
