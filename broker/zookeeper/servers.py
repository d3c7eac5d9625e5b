"""Which of ZooKeeper's servers serve, asked of each one by its command `srvr`.

A session sees one server only: while the others have a quorum, nobody notices that a server is down. The packages of
Debian export no metrics of ZooKeeper, so its clients say it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from types import MappingProxyType
from typing import Final

from broker.config.endpoint import host_port
from broker.utils.aside import Aside
from broker.utils.clock import Clock
from broker.zookeeper.connect_string import Secure

#: What a server without a quorum answers.
NOT_SERVING: Final = "not currently serving"
# ZooKeeper logs each question, and every broker asks every server.
PERIOD_MS: Final = 50_000
# Three questions, and the time between scrapes. An older answer says nothing of now.
_MOST_MS: Final = 180_000
_TIMEOUT_S: Final = 2.0
# Servers that serve answer in milliseconds.
_FIRST_WAIT_S: Final = 0.5
_MOST_BYTES: Final = 64 << 10
_NONE: Final[Mapping[str, bool]] = MappingProxyType({})


def srvr(address: tuple[str, int], secure: Secure | None, timeout_s: float) -> str:
    """A server's answer to `srvr`. Raises OSError, and UnicodeError for what cannot be a host's name."""
    with closing(socket.create_connection(address, timeout_s)) as plain:
        connection = plain if secure is None else secure(plain, address[0])
        with closing(connection):
            connection.sendall(b"srvr")
            received = b""
            with suppress(ConnectionResetError):
                while len(received) < _MOST_BYTES and (more := connection.recv(4096)):
                    received += more
    return received.decode(errors="replace")


def is_serving(address: tuple[str, int], secure: Secure | None, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether it answers and has a quorum. One that does not know the command serves as far as can be seen."""
    try:
        answer = srvr(address, secure, timeout_s)
    except (OSError, UnicodeError):
        return False
    return bool(answer) and NOT_SERVING not in answer


class Servers:
    """The ensemble's servers, asked about once a minute while somebody reads the metrics.

    The first reader waits half a second for the answers, as does one after a long time. The others get those of the
    time before. Its readers take turns.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], secure: Secure | None, clock: Clock) -> None:
        self._addresses = tuple(addresses)
        self._secure = secure
        self._clock = clock
        self._aside = Aside("zookeeper-servers", self._ask, clock)
        self._begun_ms: int | None = None

    def serving(self) -> Mapping[str, bool]:
        """Whether each server serves, by ``host:port``; empty while that is not known."""
        if not self._addresses:
            return _NONE
        now_ms = self._clock.monotonic_ms()
        if self._begun_ms is None or now_ms - self._begun_ms >= PERIOD_MS:
            self._aside.begin(_FIRST_WAIT_S if self._aside.answer(_MOST_MS) is None else 0)
            self._begun_ms = now_ms
        return self._aside.answer(_MOST_MS) or _NONE

    def _ask(self) -> Mapping[str, bool]:
        return {host_port(*address): is_serving(address, self._secure) for address in self._addresses}
