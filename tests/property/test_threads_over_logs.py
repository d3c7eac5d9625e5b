"""Real threads over one LogManager and ReplicaManager: 20 seconds of ``make stress``, another seed each time."""

import random
import subprocess
import sys

import pytest

from tests.stress.lock_sites import ROOT

SECONDS, STALL_S = 20, 25


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_threads_lose_nothing_stand_nowhere_still_and_keep_the_order_of_locks() -> None:
    """In a process of its own: locks are traced from before the broker's modules are loaded."""
    seed = random.SystemRandom().randrange(10**9)
    command = [sys.executable, "-m", "tests.stress", "--seed", str(seed)]
    command += ["--seconds", str(SECONDS), "--stall", str(STALL_S)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"make stress SECONDS={SECONDS} SEED={seed}\n{done.stdout}{done.stderr}"
