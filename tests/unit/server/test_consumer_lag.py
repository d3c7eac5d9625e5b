"""The lag of consumer groups: what is reported, how much of it, and when it is computed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest
from structlog.testing import capture_logs

from broker.coordinator.group.describe import CommittedOffsets
from broker.metrics.exposition import Exposition
from broker.metrics.registry import Metrics
from broker.server import consumer_lag
from broker.server.consumer_lag import INTEREST_MS, ConsumerLag, LagState, lag_of, register_metrics
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.clocks import ManualClock
from tests.support.group_fakes import Harness

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Ends:
    """The ends of the logs, as EndOffsets finds them."""

    def __init__(self) -> None:
        self.known = {TP: 100, OTHER: 50}
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.closed, self.closing = threading.Event(), threading.Event()
        self.closing.set()

    def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        self.gate.wait(30)
        return {partition: self.known[partition] for partition in partitions if partition in self.known}

    def close(self) -> None:
        """There are no channels."""
        self.closed.set()
        self.closing.wait(30)

    def stop(self) -> None:
        self.closing.set()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.gate.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def lag(harness: Harness, ends: Ends, clock: ManualClock) -> Iterator[ConsumerLag]:
    made = ConsumerLag(harness.coordinator.committed_offsets, ends, most=10, clock=clock)  # type: ignore[arg-type]
    yield made
    ends.gate.set()
    made.shutdown()


def page(lag: ConsumerLag) -> str:
    metrics = Metrics()
    register_metrics(metrics, lag)
    return Exposition(metrics).text().decode()


def test_the_lag_is_from_the_committed_offset_to_the_end(harness: Harness, lag: ConsumerLag) -> None:
    harness.commit({TP: 70, OTHER: 50})
    lines = page(lag).splitlines()
    assert 'kafka_consumergroup_lag{consumergroup="g1",partition="0",topic="orders"} 30.0' in lines
    assert 'kafka_consumergroup_lag{consumergroup="g1",partition="1",topic="orders"} 0.0' in lines
    assert 'kafka_consumergroup_lag_sum{consumergroup="g1",topic="orders"} 30.0' in lines
    assert 'kafka_consumergroup_current_offset{consumergroup="g1",partition="0",topic="orders"} 70.0' in lines
    assert 'kafka_consumergroup_members{consumergroup="g1"} 0.0' in lines


def test_a_group_beyond_the_end_has_no_lag() -> None:
    assert lag_of(CommittedOffsets("g", "Empty", 0, {TP: 120}), {TP: 100}).total == 0


def test_an_unknown_end_is_counted_and_reported_as_no_number(
    harness: Harness, ends: Ends, lag: ConsumerLag
) -> None:
    harness.commit({TP: 70, OTHER: 50})
    del ends.known[OTHER]
    text = page(lag)
    assert 'kafka_consumergroup_lag{consumergroup="g1",partition="0",topic="orders"} 30.0' in text
    assert 'kafka_consumergroup_lag{consumergroup="g1",partition="1"' not in text
    assert "\nlandline_consumergroup_lag_unknown 1.0\n" in text


def test_no_more_than_the_limit_is_reported_and_groups_with_members_come_first(harness: Harness) -> None:
    for name in ("a", "b", "c"):
        harness.commit({TP: 1, OTHER: 1}, group=name)
    harness.stable_group(group="z")
    groups, left_out = harness.coordinator.committed_offsets(6)
    assert [(group.group_id, len(group.offsets)) for group in groups] == [("z", 0), ("a", 2), ("b", 1)]
    assert left_out == 1 + 3


def test_nobody_asks_the_leaders_while_nobody_looks(
    harness: Harness, ends: Ends, lag: ConsumerLag, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_lag, "PERIOD_S", 0.01)
    harness.commit({TP: 70})
    assert ends.asked == 0
    lag.current()
    wait_until(lambda: ends.asked > 2, what="it asks again and again")
    clock.now_ms += INTEREST_MS + 1
    wait_until(lambda: lag._thread is None, what="its thread ends")
    assert lag.current().groups[0].total == 30, "and begins again"


def test_who_looks_while_the_channels_are_closed_starts_no_second_thread(
    harness: Harness, ends: Ends, lag: ConsumerLag, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would use the channels at the same time."""
    monkeypatch.setattr(consumer_lag, "PERIOD_S", 0.01)
    harness.commit({TP: 70})
    lag.current()
    thread = lag._thread
    ends.closing.clear()
    clock.now_ms += INTEREST_MS + 1
    wait_until(ends.closed.is_set, what="the thread ends")
    assert lag.current().groups
    assert lag._thread is thread
    ends.closing.set()
    asked = ends.asked
    wait_until(lambda: ends.asked > asked, what="it goes on")
    assert lag._thread is thread


def test_a_leader_that_hangs_holds_up_only_the_first_look(
    harness: Harness, ends: Ends, lag: ConsumerLag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_lag, "_FIRST_WAIT_S", 0.05)
    harness.commit({TP: 70})
    ends.gate.clear()
    assert (lag.current().groups, lag.current().state) == ((), LagState.LATER)
    monkeypatch.setattr(consumer_lag, "_FIRST_WAIT_S", 30)
    assert lag.current().groups == (), "the second one does not wait"
    ends.gate.set()
    wait_until(lambda: lag.current().groups, what="the lag is known")
    assert lag.current().state is LagState.KNOWN


def test_an_error_makes_the_lags_unknown_and_costs_one_round(
    harness: Harness, ends: Ends, lag: ConsumerLag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_lag, "PERIOD_S", 0.01)
    harness.commit({TP: 70})
    good, ends.known = ends.known, None  # type: ignore[assignment]
    with capture_logs() as lines:
        assert "\nlandline_consumergroup_lag_unknown 1.0\n" in page(
            lag
        )  # which raises ConsumerGroupLagIncomplete
        ends.known = good
        wait_until(lambda: lag.current().groups[0].total, what="the next round works")
    assert lines[0]["event"] == "consumer_lag_failed"


def test_an_error_of_the_coordinator_costs_one_round(
    ends: Ends, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_lag, "PERIOD_S", 0.01)
    answers: list[tuple[tuple[CommittedOffsets, ...], int]] = []
    lag = ConsumerLag(lambda most: answers[0], ends, most=10, clock=clock)  # type: ignore[arg-type]
    try:
        with capture_logs() as lines:
            assert lag.current().state is LagState.LATER
            answers.append(((CommittedOffsets("g", "Empty", 0, {TP: 70}),), 0))
            wait_until(lambda: lag.current().groups, what="the next round works")
        assert lines[0]["event"] == "consumer_lag_failed"
    finally:
        lag.shutdown()


def test_a_limit_of_0_turns_it_off(harness: Harness, ends: Ends, clock: ManualClock) -> None:
    harness.commit({TP: 70})
    lag = ConsumerLag(harness.coordinator.committed_offsets, ends, most=0, clock=clock)  # type: ignore[arg-type]
    assert (lag.current().groups, lag.current().state) == ((), LagState.OFF)
    assert ends.asked == 0


def test_a_thread_that_cannot_be_started_is_tried_again(
    harness: Harness, lag: ConsumerLag, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    harness.commit({TP: 70})
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with capture_logs() as lines:
        assert lag.current().state is LagState.LATER
    assert [line["event"] for line in lines] == ["consumer_lag_failed"]
    monkeypatch.undo()
    assert lag.current().groups[0].total == 30


def test_no_group_is_known_to_be_none(lag: ConsumerLag) -> None:
    assert (lag.current().groups, lag.current().state) == ((), LagState.KNOWN)
