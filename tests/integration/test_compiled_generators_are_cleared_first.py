"""What ``clear_first`` mends is real: threads that run the same generator get each other's, as mypyc compiles it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mypyc_module import compiled

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STEPS = """
from collections.abc import Iterator

def steps(held: object, count: int) -> Iterator[int]:
    number = 0
    while number < count:
        yield number
        number += 1
"""
# Each is left before its end. The end of what it holds lets the others run, and so does who goes through it.
RUN = """
import sys, threading, time

sys.path.insert(0, sys.argv[1])
from steps import steps

assert not sys.modules["steps"].__file__.endswith(".py")

class Ends:
    def __del__(self):
        time.sleep(0)

wrong, end = [], time.monotonic() + float(sys.argv[2])

def run():
    while time.monotonic() < end and not wrong:
        found = []
        try:
            for number in steps((Ends(),), 3):
                found.append(number)
                time.sleep(0)
                if number:
                    break
        except Exception as error:
            found = error
        if found != [0, 1]:
            wrong.append(found)

threads = [threading.Thread(target=run) for _ in range(4)]
sys.setswitchinterval(1e-6)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(wrong or "right")
"""


def ran(directory: Path, *, mends: bool, seconds: int) -> subprocess.CompletedProcess[str]:
    step = "tools.compiled.clear_first:cleared_first" if mends else ""
    library = compiled(directory, "steps", STEPS, step)
    command = [sys.executable, "-c", RUN, str(library), str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_mypyc_writes_mixes_the_generators_of_threads_up(tmp_path: Path) -> None:
    """An exception, a wrong result, or a signal."""
    ended = ran(tmp_path, mends=False, seconds=30)
    assert ended.returncode or ended.stdout != "right\n"


def test_what_is_mended_does_not(tmp_path: Path) -> None:
    ended = ran(tmp_path, mends=True, seconds=3)
    assert (ended.returncode, ended.stdout) == (0, "right\n"), ended.stderr
