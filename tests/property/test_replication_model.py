"""Whatever happens to a replicated partition, no committed record is lost: a search through interleavings.

``REPLICATION_MODEL_EXAMPLES`` and ``REPLICATION_MODEL_STEPS`` lengthen it. That it finds what it looks for,
is shown with rules broken on purpose (``tests.support.mutations``).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import ReplicationMachine
from tests.support.mutations import MUTATIONS, mutated

EXAMPLES = int(os.environ.get("REPLICATION_MODEL_EXAMPLES", "120"))
STEPS = int(os.environ.get("REPLICATION_MODEL_STEPS", "50"))
SETTINGS = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
)
pytestmark = [
    pytest.mark.timeout(900),  # a failure is made smaller for minutes
    pytest.mark.usefixtures("quiet"),
]


class UncleanMachine(ReplicationMachine):
    """Records may be lost here; but there is always one truth in the end, which all replicas hold."""

    unclean = True


class EligibleMachine(ReplicationMachine):
    """The last of an ISR may lose its power here, as long as an eligible replica lives."""

    eligible = True


def test_no_committed_record_is_lost() -> None:
    run_state_machine_as_test(ReplicationMachine, settings=SETTINGS)


def test_no_committed_record_is_lost_with_the_last_of_an_isr_where_others_are_eligible() -> None:
    run_state_machine_as_test(EligibleMachine, settings=SETTINGS)


def test_replicas_agree_in_the_end_though_elections_were_unclean() -> None:
    run_state_machine_as_test(UncleanMachine, settings=settings(SETTINGS, max_examples=EXAMPLES // 3))


@pytest.mark.parametrize(
    "name", ["acknowledge-before-isr", "high-watermark-by-leader-alone", "shrink-counts-at-once"]
)
def test_search_finds_a_broken_rule(name: str) -> None:
    found = settings(SETTINGS, max_examples=1000, phases=[Phase.generate], database=None, print_blob=False)
    with mutated(MUTATIONS[name]), pytest.raises(AssertionError, match=r"committed is"):
        run_state_machine_as_test(ReplicationMachine, settings=found)
