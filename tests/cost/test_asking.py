"""What a request takes of a whole broker is found: time, bytes, memory that is kept, and whether it was answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import structlog

from bench.cost import table
from bench.cost.asked import FEW, TOO_MANY, Asked, request
from bench.cost.asking import Asking, Outcome, asking, loaded
from bench.guard.stage import frame
from broker.protocol.api_keys import ApiKey

ASKED = Asked("find_coordinator", 6, "coordinator_keys", alike=False)
PER_ELEMENT_US = 200


@pytest.fixture
def client() -> Iterator[Asking]:
    with structlog.testing.capture_logs(), asking() as made:
        loaded(made, [ASKED])
        yield made


def wrapped(client: Asking, does: Callable[[object], None]) -> None:
    """Has the broker do more for each request of FindCoordinator."""
    served = client.stage.server._apis._served[ApiKey.FIND_COORDINATOR]
    handler = served.handler

    def more(one, ctx):
        does(one)
        return handler(one, ctx)

    served.handler = more


def test_what_is_answered_refused_and_put_out_is_told_apart(client: Asking) -> None:
    answered = client.take(ASKED.key, ASKED.version, request(ASKED, FEW))
    assert answered.outcome is Outcome.ANSWERED
    assert answered.out > FEW
    refused = client.take(ApiKey.LIST_GROUPS, 5, request(Asked("list_groups", 5, "states_filter"), TOO_MANY))
    assert refused.outcome is Outcome.REFUSED
    closed = client.take(ASKED.key, ASKED.version, frame(ASKED.key, ASKED.version, b"\x00\xff\xff"))
    assert (closed.outcome, closed.out) == (Outcome.CLOSED, 0)
    assert client.take(ASKED.key, ASKED.version, request(ASKED, 1)).outcome is Outcome.ANSWERED


def test_what_is_slower_and_what_is_kept_is_dear(client: Asking) -> None:
    def judged() -> table.Finding:
        taken = client.least(ASKED, FEW, 3, lambda _: False)
        return table.judge(str(ASKED), FEW, FEW, expected, taken)

    expected = None
    expected = judged().line
    assert judged().wrong == []
    kept: list[object] = []
    wrapped(client, lambda one: kept.extend(bytes(one.body)[at : at + 3] for at in range(FEW)))
    assert judged().wrong == ["kept"]

    def burn(_: object) -> None:
        end = time.thread_time_ns() + FEW * PER_ELEMENT_US * 1000
        while time.thread_time_ns() < end:
            pass

    kept.clear()
    wrapped(client, burn)
    assert "CPU" in judged().wrong
