"""What ``store_first`` mends is real: threads that read an attribute while it is replaced crash what mypyc compiles as
it is, and not what is mended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mypyc_module import compiled

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HELD = """
class Held:
    def __init__(self, value: object) -> None:
        self.value = value

    def replace(self, value: object) -> None:
        self.value = value

    def read(self) -> object:
        return self.value
"""
# The end of a value lets the readers run: it is a tuple, of which an element gives up the interpreter when it goes.
REPLACE = """
import sys, threading, time

sys.path.insert(0, sys.argv[1])
from held import Held

assert not sys.modules["held"].__file__.endswith(".py")

class Ends:
    def __init__(self):
        self.pad = [1] * 10

    def __del__(self):
        time.sleep(0)

held, stops = Held((Ends(),)), threading.Event()

def read():
    while not stops.is_set():
        assert held.read()[0].pad

readers = [threading.Thread(target=read) for _ in range(3)]
sys.setswitchinterval(1e-6)
for reader in readers:
    reader.start()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end and all(reader.is_alive() for reader in readers):
    held.replace((Ends(),))
print("whole" if all(reader.is_alive() for reader in readers) else "a reader died")
stops.set()
for reader in readers:
    reader.join()
"""


def replaced(directory: Path, *, mends: bool, seconds: int) -> subprocess.CompletedProcess[str]:
    """The end of a program that replaces an attribute for so long while others read it."""
    step = "tools.compiled.store_first:stored_first" if mends else ""
    library = compiled(directory, "held", HELD, step)
    # What is released is overwritten at once, so that a later use of it is not a matter of chance.
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    command = [sys.executable, "-c", REPLACE, str(library), str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_what_mypyc_writes_crashes_when_a_value_that_is_read_is_replaced(tmp_path: Path) -> None:
    """By a signal, or by an exception in a reader that had been given something else."""
    ended = replaced(tmp_path, mends=False, seconds=30)
    assert ended.returncode or ended.stdout != "whole\n"


def test_what_is_mended_does_not(tmp_path: Path) -> None:
    ended = replaced(tmp_path, mends=True, seconds=3)
    assert (ended.returncode, ended.stdout) == (0, "whole\n"), ended.stderr
