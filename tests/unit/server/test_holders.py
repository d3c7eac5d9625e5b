"""The status page says who has the stop permit and the turn to move, writes nothing for it and never waits long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.holders import HoldersReader
from broker.server.http.overview import Holders
from broker.server.moves.turn import MoveLease, MoveTurn
from broker.server.stopping.stop_permit import Lease, StopPermit
from broker.server.zookeeper_clock import CLOCK
from broker.utils.clock import SYSTEM_CLOCK
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import ConnectionLossError, Stat
from rig.wait import wait_until
from tests.support.clocks import ManualClock

MINUTE_MS = 60_000
ALICE, BOB = "alice@control", "bob@laptop"


class Slow(EmbeddedStore):
    """A store that answers reads only while ``go`` is set, and fails them while ``away``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = threading.Event()
        self.go.set()
        self.away = False
        self.asked = 0

    def get(self, path: str) -> tuple[bytes, Stat]:
        self.asked += 1
        assert self.go.wait(30)
        if self.away:
            raise ConnectionLossError(path)
        return super().get(path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Slow]:
    store = Slow(tmp_path / "metadata.db")
    store.connect(0, threading.Event())
    yield store
    store.go.set()
    store.close()


def test_both_holders_are_known_and_nothing_is_written_for_it(store: Slow) -> None:
    assert StopPermit(store).take(Lease(ALICE, 2, MINUTE_MS)) is None
    assert MoveTurn(store).take(MoveLease(BOB, "rebalance", MINUTE_MS)) is None
    clock_before = store.exists(CLOCK)
    found = HoldersReader(store, SYSTEM_CLOCK).current()
    assert found is not None
    assert found.permit is not None
    assert found.turn is not None
    assert (found.permit.holder, found.permit.broker_id) == (ALICE, 2)
    assert (found.turn.holder, found.turn.command, found.turn.is_ending) == (BOB, "rebalance", False)
    assert found.permit.since < found.permit.until
    assert store.exists(CLOCK) == clock_before


def test_a_lease_that_is_over_has_no_holder(store: Slow) -> None:
    assert StopPermit(store).take(Lease(ALICE, 2, MINUTE_MS)) is None
    later = ManualClock(SYSTEM_CLOCK.wall_ms() + 2 * MINUTE_MS)
    assert HoldersReader(store, later).current() == Holders()


def test_a_cluster_that_never_had_a_lease_has_no_holders(store: Slow) -> None:
    assert HoldersReader(store, SYSTEM_CLOCK).current() == Holders()


def test_a_zookeeper_that_does_not_answer_is_asked_once_and_waited_for_once(store: Slow) -> None:
    store.go.clear()
    reader = HoldersReader(store, SYSTEM_CLOCK)
    assert reader.current() is None
    for _ in range(5):
        assert reader.current() is None
    assert store.asked == 1
    store.go.set()
    wait_until(lambda: reader.current() == Holders(), what="it answers again")


def test_a_zookeeper_that_is_away_leaves_the_holders_unknown(store: Slow) -> None:
    reader = HoldersReader(store, SYSTEM_CLOCK)
    assert reader.current() == Holders()
    store.away = True
    assert reader.current() is None
