"""The stress run ends with a problem where a defect was put in on purpose."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rig.landline_broker import REPOSITORY
from tests.support.compiled import only_on_python

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(320), only_on_python]

# What each is found by.
SIGNS = {
    "flush-within-a-followers-append": "against the written order",
    "compaction-drops-a-batch": "nothing later",
    "acknowledge-before-isr": "was committed there",
    "high-watermark-by-leader-alone": "is committed in",
}


@pytest.mark.parametrize("defect", SIGNS)
def test_a_defect_put_back_in_is_found(defect: str) -> None:
    # The first problem ends the run: how long it lasts at most, and that nothing else counts as one before, is for a
    # machine whose CPUs and disk are busy otherwise.
    options = ("--seconds", "100", "--seed", "5", "--stall", "60", "--plant", defect)
    command = [sys.executable, "-m", "tests.stress", *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1, done.stdout
    assert SIGNS[defect] in done.stderr, done.stderr[-3000:]
