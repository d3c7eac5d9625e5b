"""A server process under test: started with a log file, stopped, killed, frozen and measured by its pid.

Knows nothing of brokers or ZooKeeper. Processes that still run at the end of the test run are killed.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from rig.wait import wait_until

MIB = 1024 * 1024

_alive: weakref.WeakSet[ManagedProcess] = weakref.WeakSet()


class ProcessFailedError(RuntimeError):
    """The process ended, or did not get ready in time. The message includes the end of its log."""


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """CPU time of a process since its start, in seconds, in user mode and in the kernel."""

    user: float
    system: float

    @property
    def total(self) -> float:
        """User and system together."""
        return self.user + self.system

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.user - earlier.user, self.system - earlier.system)


class ManagedProcess:
    """One process at a time, which can be started again after every stop. All output is appended to one
    log file.
    """

    def __init__(
        self,
        title: str,
        command: Callable[[], Sequence[str]],
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.title = title
        self.log_path = log_path
        self._command = command
        self._env = dict(os.environ, **(env or {}))
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; raises ``ProcessFailedError`` when no process is running."""
        if self._process is None or self._process.poll() is not None:
            raise ProcessFailedError(f"{self.title} is not running\n{self.log_tail()}")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The last process's exit code (negative: the signal that ended it), or None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts the process without waiting until it is ready."""
        if self.running:
            raise ProcessFailedError(f"{self.title} runs already (pid {self.pid})")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                list(self._command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        _alive.add(self)

    def wait_ready(self, is_ready: Callable[[], bool], timeout_s: float, interval_s: float = 0.05) -> None:
        """Waits until ``is_ready``; raises with the end of the log when the process ends or the time
        is over.
        """

        def ready_or_dead() -> bool:
            return not self.running or is_ready()

        try:
            wait_until(ready_or_dead, timeout=timeout_s, interval=interval_s)
        except TimeoutError as error:
            raise ProcessFailedError(
                f"{self.title} was not ready within {timeout_s} s\n{self.log_tail()}"
            ) from error
        if not self.running:
            raise ProcessFailedError(
                f"{self.title} ended with {self.exit_code} while starting\n{self.log_tail()}"
            )

    def stop(self, timeout_s: float = 60.0) -> int:
        """Sends SIGTERM and returns the exit code; on a timeout, kills it and
        raises ``ProcessFailedError``.
        """
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Kills the process by SIGKILL; does nothing when it has already ended."""
        self._end(signal.SIGKILL, 30.0)

    def freeze(self) -> None:
        """Suspends the process's threads (SIGSTOP): a hung server whose sockets still accept connections.

        Returns when all threads are suspended: on a busy machine one may otherwise still answer.
        """
        os.kill(self.pid, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        wait_until(
            lambda: all(_is_stopped(task) for task in tasks.iterdir()), what=f"{self.title} stands still"
        )

    def thaw(self) -> None:
        """Resumes a frozen process."""
        os.kill(self.pid, signal.SIGCONT)

    def rss_mb(self) -> float:
        """Resident memory in MiB."""
        return float(psutil.Process(self.pid).memory_info().rss) / MIB

    def cpu_seconds(self) -> CpuSeconds:
        """CPU time since the process's start."""
        times = psutil.Process(self.pid).cpu_times()
        return CpuSeconds(times.user, times.system)

    def log_text(self) -> str:
        """All output of the process, across restarts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the log, for an error message."""
        return f"--- {self.log_path}\n" + "\n".join(self.log_text().splitlines()[-lines:])

    def _end(self, how: signal.Signals, timeout_s: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(how)
            if how is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait(30.0)
            raise ProcessFailedError(
                f"{self.title} did not end within {timeout_s} s after {how.name}\n{self.log_tail()}"
            ) from error


def _is_stopped(task: Path) -> bool:
    """Whether a thread is stopped by a signal, or has ended."""
    try:
        return task.joinpath("stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except (FileNotFoundError, ProcessLookupError):
        return True


@atexit.register
def _kill_what_is_left() -> None:
    for process in list(_alive):
        if process.running:
            process.kill()
