"""The machine under the measurement: its description, and who used its CPUs during a run."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from bench import loopback
from rig.processes import CpuSeconds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of one measured run. ``foreign_cores`` is what neither broker nor client used, in
    whole CPUs.
    """

    seconds: float
    broker: CpuSeconds
    client: CpuSeconds
    foreign_cores: float

    def __add__(self, other: Usage) -> Usage:
        """The sum of both runs."""
        seconds = self.seconds + other.seconds
        foreign = self.foreign_cores * self.seconds + other.foreign_cores * other.seconds
        return Usage(
            seconds, _sum(self.broker, other.broker), _sum(self.client, other.client), foreign / seconds
        )


def description() -> dict[str, str]:
    """CPU, memory, kernel, TCP's congestion control, Python and Java, for the head of the report."""
    return {
        "cpus": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{psutil.virtual_memory().total / 1024**3:.0f} GiB",
        "kernel": f"{platform.release()}, TCP {loopback.congestion_control()}",
        "python": platform.python_version(),
        "java": _java_version(),
    }


def measure(work: Callable[[], T], broker_cpu: Callable[[], CpuSeconds]) -> tuple[T, Usage]:
    """Runs ``work``; returns its result, and its time and CPU usage."""
    busy, own, broker, start = _busy_seconds(), _own_seconds(), broker_cpu(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    broker_used, own_used = broker_cpu() - broker, _own_seconds() - own
    foreign = _busy_seconds() - busy - broker_used.total - own_used.total
    return result, Usage(seconds, broker_used, own_used, max(0.0, foreign) / seconds)


def begin_peak(pid: int) -> None:
    """Starts a new measurement of the process's peak memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    """The process's peak memory since :func:`begin_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def run_seconds(pid: int) -> float:
    """CPU seconds of a process's living threads, to the nanosecond; ``cpu_seconds`` only has hundredths."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def _sum(one: CpuSeconds, other: CpuSeconds) -> CpuSeconds:
    return CpuSeconds(one.user + other.user, one.system + other.system)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def _own_seconds() -> CpuSeconds:
    """The CPU time of this process and of the clients that it waited for."""
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
