"""What is dear to tell costs no more for being named twenty times in one request than the names' own bytes do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from bench.cost.asking import Asking, Outcome, asking
from bench.cost.states import STATES, State, repeats

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Passes of the reference's loop, of 0.1 ms, and bytes. What is dear once varies by more than that from one try to
# the next; told again, it would cost the whole once more.
MOST_CPU, MOST_SHARE, MOST_BYTES = 0.5, 0.05, 256


@pytest.fixture(scope="module")
def client() -> Iterator[Asking]:
    with structlog.testing.capture_logs(), asking() as made:
        for prepare in dict.fromkeys(state.prepare for state in STATES):
            prepare(made.stage)
        yield made


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_what_is_named_again_costs_its_own_bytes(client: Asking, state: State) -> None:
    found = repeats(client, state)
    assert found.once.outcome is Outcome.ANSWERED
    assert found.more_bytes <= MOST_BYTES, found
    assert found.more_cpu <= max(MOST_CPU, MOST_SHARE * found.once.cpu), found
