"""Real threads over one LogManager and ReplicaManager: a while of ``make stress``, another seed each time. How long
is said by ``STRESS_SECONDS``.
"""

import os
import random
import subprocess
import sys

import pytest

from tests.stress.lock_sites import ROOT

SECONDS = int(os.environ.get("STRESS_SECONDS", "20"))
# Threads that wait for each other do so for ever. Those of a process that gets what little other tests leave go on in
# time: the scheduler's, all of them syncing logs, once stood still for longer than 25 s.
STALL_S = 120
# From the end of the run until everybody was answered, everything read and all was opened anew, on a busy machine.
END_S = 360


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + END_S + 60)
def test_threads_lose_nothing_stand_nowhere_still_and_keep_the_order_of_locks() -> None:
    """In a process of its own: locks are traced from before the broker's modules are loaded."""
    seed = random.SystemRandom().randrange(10**9)
    command = [sys.executable, "-m", "tests.stress", "--seed", str(seed)]
    command += ["--seconds", str(SECONDS), "--stall", str(STALL_S)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS + END_S, check=False
    )
    # A summary of a run shows the first line alone, so it says what went wrong.
    problem = next(
        (line for line in done.stderr.splitlines() if line.startswith("PROBLEM")), "no problem told"
    )
    told = f"{done.stdout}{done.stderr}"
    assert done.returncode == 0, f"{problem} (make stress SECONDS={SECONDS} SEED={seed})\n{told}"
