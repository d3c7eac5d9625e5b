"""What ``store_first`` mends is real: threads that read an attribute while it is replaced crash what mypyc compiles as
it is, and not what is mended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
COMPILE = """
import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Distribution

from tools.compiled.store_first import stored_first

out, mends = sys.argv[1], sys.argv[2] == "mended"
extensions = mypycify([f"{out}/held.py"], opt_level="1", target_dir=f"{out}/c")
for path in Path(f"{out}/c").rglob("*.c"):
    if mends:
        path.write_text(stored_first(path.read_text())[0])
command = Distribution({"name": "held", "ext_modules": extensions, "packages": []}).get_command_obj("build_ext")
command.build_lib, command.build_temp = f"{out}/lib", f"{out}/o"
command.ensure_finalized()
command.run()
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


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    # What is released is overwritten at once, so that a later use of it is not a matter of chance.
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )


def replaced(directory: Path, *, mends: bool, seconds: int) -> subprocess.CompletedProcess[str]:
    """The end of a program that replaces an attribute for so long while others read it."""
    (directory / "held.py").write_text(HELD)
    made = python("-c", COMPILE, str(directory), "mended" if mends else "as it is")
    assert made.returncode == 0, made.stdout + made.stderr
    return python("-c", REPLACE, str(directory / "lib"), str(seconds))


def test_what_mypyc_writes_crashes_when_a_value_that_is_read_is_replaced(tmp_path: Path) -> None:
    """By a signal, or by an exception in a reader that had been given something else."""
    ended = replaced(tmp_path, mends=False, seconds=30)
    assert ended.returncode or ended.stdout != "whole\n"


def test_what_is_mended_does_not(tmp_path: Path) -> None:
    ended = replaced(tmp_path, mends=True, seconds=3)
    assert (ended.returncode, ended.stdout) == (0, "whole\n"), ended.stderr
