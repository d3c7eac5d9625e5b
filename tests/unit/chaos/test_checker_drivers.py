"""What the drivers decide without a broker: kcat's output as events, the pace of writing, what may be committed."""

from __future__ import annotations

import threading

from chaos.history import Acked, Assigned, Failed, Polled
from tests.support import workloads
from tests.support.clients.driver import Positions, Workload
from tests.support.clients.kcat import _events_of_line, _outcome

DELIVERED = "% Message delivered to partition 2 (offset {}) on broker 1\n"


def test_kcats_delivery_lines_are_acknowledgements_in_order() -> None:
    output = "% Setting producer input buffer\n" + DELIVERED.format(7) + "% hint\n" + DELIVERED.format(8)
    assert _outcome("kcat", ["a", "b"], 0, output) == [Acked("kcat", "a", 2, 7), Acked("kcat", "b", 2, 8)]


def test_a_chunk_with_one_delivery_missing_is_wholly_unknown() -> None:
    events = _outcome("kcat", ["a", "b"], 0, DELIVERED.format(7))
    assert [type(event) for event in events] == [Failed, Failed]


def test_a_chunk_whose_kcat_failed_is_wholly_unknown() -> None:
    events = _outcome("kcat", ["a"], 1, DELIVERED.format(7))
    assert [type(event) for event in events] == [Failed]


def test_kcats_consumer_tells_records_and_assignments() -> None:
    rebalanced = "% Group g rebalanced (memberid rdkafka-1): assigned: t [0], t [3]\n"
    assert list(_events_of_line("c", rebalanced)) == [Assigned("c", 0), Assigned("c", 3)]
    assert list(_events_of_line("c", rebalanced.replace("assigned", "revoked"))) == []
    assert list(_events_of_line("c", "% Reached end of topic t [0] at offset 5\n")) == []
    assert list(_events_of_line("c", "3 41 kcat-0000007\n")) == [Polled("c", 3, 41, "kcat-0000007")]


def test_records_held_back_wait_for_the_gate_and_then_go_at_once() -> None:
    gate = threading.Event()
    workload = Workload("kcat", "b:1", "t", 1, records=10, held_back=2)
    wait_before = workloads._pacer(workload, gate)
    assert wait_before(7) == 0
    assert wait_before(8) > 0
    gate.set()
    assert wait_before(8) == 0


def test_the_pace_is_even_until_the_gate_opens() -> None:
    gate = threading.Event()
    wait_before = workloads._pacer(Workload("kcat", "b:1", "t", 1, records=100, records_per_s=1), gate)
    assert wait_before(0) <= 0
    assert 58 < wait_before(60) <= 60
    gate.set()
    assert wait_before(60) == 0


def test_only_what_was_read_since_the_last_assignment_is_committed() -> None:
    positions = Positions()
    for offset in range(3):
        positions.read(0, offset)
        positions.read(1, offset)
    positions.assigned(0)
    assert positions.due(every=7) == {}
    assert positions.due(every=6) == {1: 3}
    assert positions.due(every=0) == {}
