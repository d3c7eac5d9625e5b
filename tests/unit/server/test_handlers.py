"""A broker's handlers: each kind of work has threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from broker.config.broker_config import BrokerConfig
from broker.server.handlers import Handlers, start_handlers
from broker.server.lifecycle.startup_steps import StartupSteps
from tests.support.gate import WAIT_S

KINDS = ("clients", "long", "brokers", "askers", "introducer")


@pytest.fixture
def steps() -> Iterator[StartupSteps]:
    made = StartupSteps(threading.Event(), lambda _text: None)
    yield made
    made.undo_all()


@pytest.fixture
def handlers(steps: StartupSteps) -> Handlers:
    return start_handlers(
        BrokerConfig.from_properties({"zookeeper.connect": "zk", "queued.max.requests": "8"}), steps
    )


@pytest.mark.parametrize("kind", KINDS)
def test_work_of_one_kind_that_does_not_end_keeps_no_other_from_its_own(
    kind: str, handlers: Handlers
) -> None:
    end = threading.Event()
    try:
        while getattr(handlers, kind).submit(lambda: end.wait(WAIT_S)):
            pass
        for other in set(KINDS) - {kind}:
            done = threading.Event()
            assert getattr(handlers, other).submit(done.set)
            assert done.wait(WAIT_S)
    finally:
        end.set()


def test_a_stopped_brokers_handlers_take_nothing(steps: StartupSteps, handlers: Handlers) -> None:
    steps.undo_all()
    assert not any(getattr(handlers, kind).submit(lambda: None) for kind in KINDS)
