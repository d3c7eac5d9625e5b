"""Notifies systemd: readiness, status, watchdog. Does nothing without ``NOTIFY_SOCKET``.

The protocol is sd_notify(3): lines in one datagram to an AF_UNIX socket. The daemon decides what to send
and when.
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
    """Sends notifications to the service manager. Never raises and never blocks for more than a
    second. Thread-safe.
    """

    def __init__(self, address: str | None) -> None:
        """``address`` is a path, or ``@`` and a name in the abstract namespace; None sends nothing."""
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
        """Reports that start-up or shutdown continues, and extends the time-out to at least ``extend_ms``
        from now.
        """
        self.send(f"STATUS={_one_line(text)}", f"EXTEND_TIMEOUT_USEC={extend_ms * 1000}")

    def stopping(self, status: str) -> None:
        self.send("STOPPING=1", f"STATUS={_one_line(status)}")

    def watchdog(self) -> None:
        self.send("WATCHDOG=1")

    def send(self, *lines: str) -> None:
        """Sends one datagram of ``KEY=value`` lines."""
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
    """Notifies systemd twice per ``WATCHDOG_USEC`` that the broker is alive, as long as ``is_alive``
    returns True.
    """

    def __init__(self, notifier: Notifier, interval_ms: int, is_alive: Callable[[], bool]) -> None:
        self._notifier = notifier
        self._interval_ms = interval_ms
        self._is_alive = is_alive
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="systemd-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the notifications. Send STOPPING first, so that systemd no longer expects them."""
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
        except Exception:  # a check that fails is no sign of life
            _log.exception("watchdog_check_failed")
            return False


def watchdog_interval_ms(environment: Mapping[str, str] = os.environ, pid: int | None = None) -> int | None:
    """Half of ``WATCHDOG_USEC``, in milliseconds; None if systemd does not watch this process."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    watched_pid = environment.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    if watched_pid and watched_pid != str(os.getpid() if pid is None else pid):
        return None
    return max(int(microseconds) // 2000, 1)


def _one_line(text: str) -> str:
    return " ".join(text.split())
