"""The machine under the measurement: its description, who used its CPUs, and pages that were touched before.

A virtual machine hands free memory back to its host; the next first write to such a page runs ten times slower and
is billed to whoever makes it. ``touch_free_memory`` pays that before each run, for every target alike.
"""

from __future__ import annotations

import mmap
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.processes import MIB, CpuSeconds

CHUNK = bytes(range(256)) * (MIB // 256)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one measured run took. ``foreign_cores`` is what neither broker nor client used, in whole CPUs."""

    seconds: float
    broker: CpuSeconds
    client: CpuSeconds
    foreign_cores: float


def description() -> dict[str, str]:
    """CPU, memory, kernel and Python, for the report's head."""
    return {
        "cpus": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{psutil.virtual_memory().total / 1024**3:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
    }


def touch_free_memory(mib: int) -> None:
    """Writes to ``mib`` MiB of fresh memory in a process that ends at once, as far as half the free memory allows."""
    allowed = int(psutil.virtual_memory().available / MIB / 2)
    subprocess.run([sys.executable, "-m", "bench.machine", str(min(mib, allowed))], check=True)


def measure(work: Callable[[], None], broker_cpu: Callable[[], CpuSeconds]) -> Usage:
    """Runs ``work`` and returns what it took of the clock and of the CPUs."""
    busy, own, broker, start = _busy_seconds(), _own_seconds(), broker_cpu(), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    broker_used, own_used = broker_cpu() - broker, _own_seconds() - own
    foreign = _busy_seconds() - busy - broker_used.total - own_used.total
    return Usage(seconds, broker_used, own_used, max(0.0, foreign) / seconds)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def _own_seconds() -> CpuSeconds:
    """This process's CPU time and that of the clients it waited for."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return CpuSeconds(sum(part.ru_utime for part in parts), sum(part.ru_stime for part in parts))


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0] if done.stderr else "none"


def _touch(mib: int) -> None:
    with mmap.mmap(-1, max(1, mib) * MIB) as memory:
        for _ in range(mib):
            memory.write(CHUNK)


if __name__ == "__main__":
    _touch(int(sys.argv[1]))
