"""Counts what requests cost in instructions and system calls, with valgrind's callgrind.

Instructions depend neither on who else uses the processor nor on its clock, so that two counts of the same code are
alike within a few hundredths on a busy machine, where times differ by a fifth and more. They leave out the kernel,
for which the number of system calls stands.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.guard.counted import REQUESTS, ROUNDS
from bench.guard.counts import Count
from bench.guard.stage import StageError

_PROGRAM: Final = (sys.executable, "-m", "bench.guard.counted")
_TIMEOUT_S: Final = 600
_OPTIONS: Final = (
    "--tool=callgrind",
    "--collect-atstart=no",
    "--toggle-collect=ffi_call",
    "--dump-before=getppid",
    "--separate-threads=yes",
    "--collect-systime=yes",
)
_TOTALS: Final = re.compile(r"^totals: (\d+)(?: (\d+))?", re.MULTILINE)


def count(names: Sequence[str] = (), program: Sequence[str] = _PROGRAM) -> Mapping[str, Count]:
    """The counts of these workloads by name, or of all; takes half a minute.

    ``program`` ends by printing the names. Raises :class:`StageError` without valgrind, and if the program fails.
    """
    if not shutil.which("valgrind"):
        raise StageError("no valgrind: `apt-get install valgrind`")
    with tempfile.TemporaryDirectory(prefix="landline-counts-") as directory:
        command = ["valgrind", *_OPTIONS, f"--callgrind-out-file={directory}/out", *program, *names]
        # Hashes of strings decide how often a dictionary's places collide.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise StageError(f"not counted within {_TIMEOUT_S} s") from None
        if done.returncode:
            raise StageError(f"{' '.join(program)} failed under valgrind:\n{done.stderr[-2000:]}")
        counted: list[str] = json.loads(done.stdout.splitlines()[-1])
        rounds = [_round(Path(directory, f"out.{number + 1}-01")) for number in range(ROUNDS * len(counted))]
    return {
        name: cheapest(rounds[ROUNDS * number : ROUNDS * (number + 1)]) for number, name in enumerate(counted)
    }


def cheapest(rounds: Sequence[tuple[int, int]]) -> Count:
    """The cost of a request in the cheapest of some rounds: another thread that wants the interpreter only adds."""
    instructions, system_calls = (min(one[place] for one in rounds) / REQUESTS for place in (0, 1))
    return Count(round(instructions), round(system_calls, 2))


def _round(path: Path) -> tuple[int, int]:
    """Instructions and system calls of one round; raises :class:`StageError` if nothing was counted in it."""
    found = _TOTALS.search(path.read_text()) if path.exists() else None
    if found is None or not int(found[1]):
        raise StageError("callgrind counted nothing: does this Python's ctypes call by libffi's ffi_call?")
    return int(found[1]), int(found[2] or 0)
