"""What a client is answered when ZooKeeper did not do what it asked for, and what the operator reads."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.protocol.errors import Errors
from broker.utils.line_budget import LineBudget
from broker.zookeeper import refusals
from broker.zookeeper.refusals import refusal_of
from broker.zookeeper.store import ConnectionLossError, SessionExpiredError, StoreError, TooLargeError
from broker.zookeeper.znodes import BadZnodeError
from tests.support.clocks import ManualClock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    made = ManualClock()
    monkeypatch.setattr(refusals, "_lines", LineBudget(made.monotonic_ms, per_second=1, at_once=2))
    return made


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionLossError("/a: no answer"), Errors.REQUEST_TIMED_OUT),
        (SessionExpiredError("/a: expired"), Errors.REQUEST_TIMED_OUT),
        (TooLargeError("/a: 2 MiB"), Errors.POLICY_VIOLATION),
        (BadZnodeError("/a has no JSON"), Errors.UNKNOWN_SERVER_ERROR),
        (StoreError("/a: NoAuth"), Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_each_error_has_kafkas_code_and_its_reason(error: StoreError, code: Errors) -> None:
    with capture_logs() as lines:
        refusal = refusal_of(error, api="describe_configs", peer="10.0.0.1")
    assert refusal.error_code is code
    assert str(error) in refusal.message
    (line,) = lines
    assert line.pop("do")
    assert line == {
        "event": "request_not_carried_out",
        "log_level": "warning",
        "api": "describe_configs",
        "peer": "10.0.0.1",
        "reason": str(error),
        "answered": code.name,
    }


def test_of_many_some_are_told_of_and_the_others_counted(clock: ManualClock) -> None:
    with capture_logs() as lines:
        for _ in range(100):
            refusal_of(ConnectionLossError("away"), api="create_topics")
        clock.now_ms += 1000
        refusal_of(ConnectionLossError("away"), api="create_topics")
    assert [line.get("left_out", 0) for line in lines] == [0, 0, 98]
