"""Runs Spark's tasks of the fabfile as a user does, inside a lab's network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rig.jvm import CHEAP_COMPILER
from rig.processes import ManagedProcess
from rig.wait import wait_until

ROOT = Path(__file__).parents[2]
FAB = Path(sys.executable).with_name("fab")


def fab(task: str, *arguments: str, base: str = "") -> subprocess.CompletedProcess[str]:
    """A task, done from the first master, or from the ``base``."""
    return subprocess.run(
        [str(FAB), *(["-H", base] if base else []), f"spark.{task}", *arguments],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )


def fab_ok(task: str, *arguments: str, base: str = "") -> str:
    done = fab(task, *arguments, base=base)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def submitted(
    job: str, arguments: Sequence[str], log: Path, cores: int = 3, more: str = ""
) -> ManagedProcess:
    """By ``fab spark.submit``; with the cheap compiler alone (rig.jvm): one flag, for the string is split."""
    words = " ".join(f"'{argument}'" for argument in arguments)
    jvm = " ".join(f"spark.{role}.extraJavaOptions={CHEAP_COMPILER}" for role in ("driver", "executor"))
    conf = f"spark.executor.cores=1 spark.cores.max={cores} {jvm} {more}"
    command = [str(FAB), "spark.submit", job, f"--conf={conf}", f"--args={words}"]
    return ManagedProcess("fab spark.submit", lambda: command, log, cwd=ROOT)


def to_its_end(job: ManagedProcess) -> None:
    job.start()
    wait_until(lambda: not job.running, timeout=400, interval=0.5, what=job.log_tail)
    assert job.exit_code == 0, job.log_tail()
