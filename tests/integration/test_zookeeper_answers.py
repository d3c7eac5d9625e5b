"""An ensemble of three whose answers fail while brokers run: a leader that stands still, disks that are slow
or do not answer. However long it lasts beside sessions and time-outs, soon after it is over all is as if it
had not been.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig.disks import needs_small_disks
from tests.support.zookeeper_answers import (
    SESSION_MS,
    AnswersSite,
    Fault,
    answers_site,
    disks_are_slow,
    disks_do_not_answer,
    endure,
    leader_stands_still,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300), needs_small_disks()]

FAULT_S = 2.5 * SESSION_MS / 1000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnswersSite]:
    with answers_site(tmp_path_factory.mktemp("answers"), own_disks=True) as made:
        yield made


@pytest.mark.parametrize("fault", [leader_stands_still, disks_are_slow, disks_do_not_answer])
def test_soon_after_its_recovery_there_is_one_controller_and_nothing_waits_for_a_restart(
    site: AnswersSite, fault: Fault
) -> None:
    endure(site, fault, FAULT_S, fault.__name__)
