"""The cost guard over a real broker: a cost that is planted is found, and only where it is."""

from __future__ import annotations

import sys

import pytest
import structlog

from bench.guard.callgrind import count
from bench.guard.counts import Verdict, judge
from bench.guard.stage import StageError, decode_answer, staged_broker
from bench.guard.workloads import all_workloads
from bench.guard.workloads.groups import GroupHeartbeat
from broker.protocol.api_keys import ApiKey
from tests.unit.bench import planted_cost


@pytest.mark.timeout(300)
def test_a_handler_that_does_a_little_more_is_found_and_the_other_is_not_accused() -> None:
    counts = count(program=(sys.executable, "-m", planted_cost.__name__))
    verdicts = {
        name: judge(name, counts[planted_cost.after(name)], counts[name]).verdict
        for name in ("produce", "heartbeat")
    }
    assert verdicts == {"produce": Verdict.DEARER, "heartbeat": Verdict.STEADY}


def test_a_program_that_fails_under_valgrind_is_no_count() -> None:
    with pytest.raises(StageError, match=r"(?s)failed under valgrind.*no such thing"):
        count(program=(sys.executable, "-c", "raise SystemExit('no such thing')"))


def test_every_workload_is_answered_without_an_error() -> None:
    with structlog.testing.capture_logs(), staged_broker() as stage:
        workloads = all_workloads(stage)
        assert len(workloads) == len({workload.name for workload in workloads}) == 11
        for workload in workloads:
            workload.begin_slice()
            for _ in range(2):
                assert workload.request() > 0
            workload.check()


def test_an_error_in_an_answer_is_no_measurement() -> None:
    with structlog.testing.capture_logs(), staged_broker() as stage:
        heartbeat = GroupHeartbeat(stage)
        heartbeat.request()
        answer = bytearray(heartbeat.client.answer)
        answer[-3:-1] = b"\x00\x19"  # UNKNOWN_MEMBER_ID
        with pytest.raises(StageError, match="HEARTBEAT"):
            decode_answer(ApiKey.HEARTBEAT, 4, memoryview(answer))
