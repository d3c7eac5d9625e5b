"""Purgatory: what waits for one of its keys or its time."""

from __future__ import annotations

import threading

import pytest

from broker.utils import purgatory
from broker.utils.purgatory import DelayedOperation, Purgatory
from broker.utils.timer import Timer
from rig.wait import wait_until
from tests.support.compiled import is_compiled

if is_compiled(purgatory):
    pytest.skip(
        "has a class below a compiled one, which only compiled ones may have", allow_module_level=True
    )


class Operation(DelayedOperation):
    def __init__(self, timeout_ms: int = 60_000) -> None:
        super().__init__(timeout_ms)
        self.ready = False
        self.completions = 0
        self.expired = False

    def can_complete(self) -> bool:
        return self.ready

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expired = True


def test_operation_that_can_complete_does_not_wait(timer: Timer) -> None:
    operation = Operation()
    operation.ready = True
    purgatory = Purgatory("p", timer)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.completions, len(purgatory)) == (1, 0)


def test_operation_completes_once_for_whichever_key_comes_true(timer: Timer) -> None:
    operation = Operation()
    purgatory = Purgatory("p", timer)
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    operation.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    assert (operation.completions, operation.expired, len(purgatory)) == (1, False, 0)


def test_operation_whose_time_is_up_completes_and_says_so(timer: Timer) -> None:
    operation = Operation(timeout_ms=20)
    purgatory = Purgatory("p", timer)
    purgatory.try_complete_else_watch(operation, ["a"])
    wait_until(lambda: operation.expired)
    assert (operation.completions, len(purgatory)) == (1, 0)


def test_operation_completes_once_though_many_threads_try(timer: Timer) -> None:
    purgatory = Purgatory("p", timer)
    operations = [Operation() for _ in range(200)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    threads = [threading.Thread(target=purgatory.check_and_complete, args=("a",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {operation.completions for operation in operations} == {1}
    purgatory.drop_empty()
    assert not purgatory._watchers


def test_abandoned_operation_neither_completes_nor_waits(timer: Timer) -> None:
    purgatory = Purgatory("p", timer)
    operation = Operation(timeout_ms=30)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    operation.abandon()
    assert len(purgatory) == 0
    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert not operation.force_complete()
    later = Operation(timeout_ms=60)
    purgatory.try_complete_else_watch(later, ["a"])
    wait_until(lambda: later.expired)
    assert (operation.completions, operation.expired) == (0, False)
