"""What ``give_way`` puts into compiled loops is needed, and is enough: another thread has its turn while one runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOOP = """
def count(times: int) -> int:
    total = 0
    for number in range(times):
        total += number & 3
    return total
"""
COMPILE = """
import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Distribution

from tools.compiled.give_way import giving_way

out, gives = sys.argv[1], sys.argv[2] == "gives way"
extensions = mypycify([f"{out}/loop.py"], opt_level="1", target_dir=f"{out}/c")
for path in Path(f"{out}/c").rglob("*.c"):
    if gives:
        path.write_text(giving_way(path.read_text())[0])
command = Distribution({"name": "loop", "ext_modules": extensions, "packages": []}).get_command_obj("build_ext")
command.build_lib, command.build_temp = f"{out}/lib", f"{out}/o"
command.ensure_finalized()
command.run()
"""
# The longest time that a thread waited for its turn while the loop ran, as a share of the loop's.
MEET = """
import sys, threading, time

sys.path.insert(0, sys.argv[1])
from loop import count

assert not sys.modules["loop"].__file__.endswith(".py")
times, took = 1 << 20, 0.0
while took < 1:
    times *= 2
    began = time.perf_counter()
    count(times)
    took = time.perf_counter() - began
waits = []

def other():
    while not stops.is_set():
        began = time.perf_counter()
        time.sleep(0.001)
        waits.append(time.perf_counter() - began)

stops = threading.Event()
thread = threading.Thread(target=other)
thread.start()
began = time.perf_counter()
count(times)
took = time.perf_counter() - began
stops.set()
thread.join()
print(max(waits) / took)
"""


def longest_wait(directory: Path, *, gives_way: bool) -> float:
    (directory / "loop.py").write_text(LOOP)
    for program, *arguments in (
        (COMPILE, str(directory), "gives way" if gives_way else "as it is"),
        (MEET, str(directory / "lib")),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return float(done.stdout)


def test_a_loop_as_mypyc_writes_it_holds_up_all_others_for_its_whole_length(tmp_path: Path) -> None:
    assert longest_wait(tmp_path, gives_way=False) > 0.8


def test_a_loop_that_gives_way_does_not(tmp_path: Path) -> None:
    assert longest_wait(tmp_path, gives_way=True) < 0.5
