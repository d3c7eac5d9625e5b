"""What ``give_way`` puts into compiled loops is needed, and is enough: another thread has its turn while one runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mypyc_module import compiled

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOOP = """
def count(times: int) -> int:
    total = 0
    for number in range(times):
        total += number & 3
    return total
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
    library = compiled(directory, "loop", LOOP, "tools.compiled.give_way:giving_way" if gives_way else "")
    command = [sys.executable, "-c", MEET, str(library)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_loop_as_mypyc_writes_it_holds_up_all_others_for_its_whole_length(tmp_path: Path) -> None:
    assert longest_wait(tmp_path, gives_way=False) > 0.8


def test_a_loop_that_gives_way_does_not(tmp_path: Path) -> None:
    assert longest_wait(tmp_path, gives_way=True) < 0.5
