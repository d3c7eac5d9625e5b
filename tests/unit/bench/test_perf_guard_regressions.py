"""The cost guard over a real broker in this process: a slowdown that is planted is found, and only where it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
import structlog

from bench.guard.measure import Cost, measure
from bench.guard.reference import Reference
from bench.guard.stage import Stage, StageError, decode_answer, staged_broker
from bench.guard.verdict import Baseline, Expected, Verdict, settle
from bench.guard.workloads import all_workloads
from bench.guard.workloads.groups import GroupHeartbeat
from bench.guard.workloads.produce import Produce
from bench.guard.workloads.workload import Workload
from broker.protocol.api_keys import ApiKey

SLICES = 30
MORE = 1.0
TOLERANCE = 0.4


@dataclass
class Guarded:
    """Two workloads of different APIs over one broker."""

    stage: Stage
    workloads: Sequence[Workload]
    reference: Reference

    def measured(self, only: Sequence[str] | None = None) -> Mapping[str, Cost]:
        chosen = [workload for workload in self.workloads if only is None or workload.name in only]
        return measure(chosen, self.reference, budget_s=12, enough=SLICES)

    def slow_down(self, api_key: ApiKey, by_ns: int) -> None:
        """Every request of the API takes ``by_ns`` of CPU more."""
        served = self.stage.server._apis._served[api_key]
        handler = served.handler

        def slower(request, ctx):
            end = time.thread_time_ns() + by_ns
            while time.thread_time_ns() < end:
                pass
            return handler(request, ctx)

        served.handler = slower


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with (
        structlog.testing.capture_logs(),
        staged_broker() as stage,
        Reference(None) as reference,
    ):
        produce = Produce(stage, "produce", 16 * 1024, acks=1, moving_share=0.4, per_slice=20)
        yield Guarded(stage, [produce, GroupHeartbeat(stage)], reference)


def test_a_handler_that_costs_twice_as_much_is_found_and_the_other_is_not_accused(guarded) -> None:
    before = guarded.measured()
    baseline = Baseline("", "", {name: Expected(cost.ratio, TOLERANCE) for name, cost in before.items()})
    guarded.slow_down(ApiKey.PRODUCE, int(MORE * before["produce"].cpu_us * 1000))
    verdicts = {finding.name: finding.verdict for finding in settle(guarded.measured, baseline, pause=print)}
    assert verdicts == {"produce": Verdict.SLOWER, "heartbeat": Verdict.STEADY}


def test_every_workload_is_answered_without_an_error() -> None:
    with structlog.testing.capture_logs(), staged_broker() as stage:
        workloads = all_workloads(stage)
        assert len(workloads) == len({workload.name for workload in workloads}) == 11
        for workload in workloads:
            workload.begin_slice()
            for _ in range(2):
                assert workload.request() > 0
            workload.check()


def test_an_error_in_an_answer_is_no_measurement(guarded) -> None:
    heartbeat = guarded.workloads[1]
    heartbeat.request()
    answer = bytearray(heartbeat.client.answer)
    answer[-3:-1] = b"\x00\x19"  # UNKNOWN_MEMBER_ID
    with pytest.raises(StageError, match="HEARTBEAT"):
        decode_answer(ApiKey.HEARTBEAT, 4, memoryview(answer))
