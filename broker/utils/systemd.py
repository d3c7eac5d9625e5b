"""Talks to systemd: readiness, status, watchdog. Does nothing where there is no ``NOTIFY_SOCKET``.

The protocol is sd_notify(3): lines in one datagram to an AF_UNIX socket. What is said when is the daemon's
part.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

import structlog

_log = structlog.get_logger(__name__)
_SEND_TIMEOUT_S: Final = 1.0


class Notifier:
    """Sends to the service manager; never raises for it, never blocks for more than a second. Thread-safe."""

    def __init__(self, address: str | None) -> None:
        """``address`` is a path, or a name in the abstract namespace behind ``@``; None sends nothing."""
        self._address = address
        self._failed = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Notifier:
        return cls(environment.get("NOTIFY_SOCKET") or None)

    @property
    def enabled(self) -> bool:
        return self._address is not None

    def ready(self, status: str) -> None:
        self.send("READY=1", f"STATUS={_one_line(status)}")

    def status(self, text: str) -> None:
        self.send(f"STATUS={_one_line(text)}")

    def busy(self, text: str, extend_ms: int) -> None:
        """Start-up or shutdown goes on: the time-out is at least ``extend_ms`` from now."""
        self.send(f"STATUS={_one_line(text)}", f"EXTEND_TIMEOUT_USEC={extend_ms * 1000}")

    def stopping(self, status: str) -> None:
        self.send("STOPPING=1", f"STATUS={_one_line(status)}")

    def watchdog(self) -> None:
        self.send("WATCHDOG=1")

    def send(self, *lines: str) -> None:
        """One datagram of ``KEY=value`` lines."""
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(_SEND_TIMEOUT_S)
                channel.connect(address)
                channel.send("\n".join(lines).encode())
        except OSError as error:
            if not self._failed:
                self._failed = True
                _log.warning("systemd_notify_failed", socket=self._address, error=str(error))


class Watchdog:
    """Tells systemd twice per ``WATCHDOG_USEC`` that the broker lives, as long as ``is_alive`` says so."""

    def __init__(self, notifier: Notifier, interval_ms: int, is_alive: Callable[[], bool]) -> None:
        self._notifier = notifier
        self._interval_ms = interval_ms
        self._is_alive = is_alive
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="systemd-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """From here on systemd must not expect a sign: say STOPPING first."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        healthy = True
        while not self._stop.wait(self._interval_ms / 1000):
            alive = self._check()
            if alive:
                self._notifier.watchdog()
            if alive != healthy:
                _log.warning("watchdog_state_changed", alive=alive, interval_ms=self._interval_ms)
            healthy = alive

    def _check(self) -> bool:
        try:
            return self._is_alive()
        except Exception:  # an answer that fails is no sign of life
            _log.exception("watchdog_check_failed")
            return False


def watchdog_interval_ms(environment: Mapping[str, str] = os.environ, pid: int | None = None) -> int | None:
    """Half of ``WATCHDOG_USEC``; None when systemd does not watch this process."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    watched_pid = environment.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    if watched_pid and watched_pid != str(os.getpid() if pid is None else pid):
        return None
    return max(int(microseconds) // 2000, 1)


def _one_line(text: str) -> str:
    return " ".join(text.split())
