"""The thread that follows changes: when it reads, what it survives, and how it ends."""

from __future__ import annotations

import threading

import pytest

from broker.zookeeper.change_follower import ChangeFollower
from broker.zookeeper.store import ConnectionLossError
from rig.wait import wait_until

THREAD = "follows-in-a-test"


class Reader:
    """Counts its calls, and raises what it is given, one a call."""

    def __init__(self, *errors: Exception) -> None:
        self.calls = 0
        self._errors = list(errors)
        self.follower = ChangeFollower(THREAD, self, unread="unread", failed="failed")

    def __call__(self) -> None:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)

    def is_idle_after(self, calls: int) -> bool:
        return self.calls == calls and not self.follower.is_awake


def test_it_reads_at_the_start_and_after_each_wake_up() -> None:
    reader = Reader()
    reader.follower.start()
    wait_until(lambda: reader.is_idle_after(1), what="the first reading")
    reader.follower.wake()
    wait_until(lambda: reader.is_idle_after(2), what="the reading after the wake-up")
    reader.follower.close()


def test_it_retries_what_the_store_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.zookeeper.change_follower.RETRY_S", 0.01)
    reader = Reader(ConnectionLossError("away"), ConnectionLossError("away"))
    reader.follower.start()
    wait_until(lambda: reader.calls == 3, what="the third try")
    reader.follower.close()


def test_it_survives_any_other_error() -> None:
    reader = Reader(KeyError("a znode of another version"))
    reader.follower.start()
    wait_until(lambda: reader.is_idle_after(1), what="the reading that fails")
    reader.follower.wake()
    wait_until(lambda: reader.calls == 2, what="the next one")
    reader.follower.close()


def test_it_tries_again_later_what_failed_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may announce anything for a long time, and what was announced is not known yet."""
    monkeypatch.setattr("broker.zookeeper.change_follower.FAILED_RETRY_S", 0.01)
    reader = Reader(KeyError("one"), KeyError("another"))
    reader.follower.start()
    wait_until(lambda: reader.calls == 3, what="the third try")
    reader.follower.close()


def test_its_thread_ends_once_however_often_it_is_closed() -> None:
    reader = Reader()
    reader.follower.close()
    reader.follower.start()
    assert reader.follower.is_started
    reader.follower.close()
    reader.follower.close()
    assert not reader.follower.is_started
    assert THREAD not in [thread.name for thread in threading.enumerate()]
