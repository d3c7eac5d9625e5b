"""Connections to addresses that only a host reaches: ssh logs in to that host, which forwards them.

Behind a bastion, or where services have a network of their own, this machine reaches no port of theirs. The host needs
AllowTcpForwarding, sshd's default.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import IO, Any

from sparkctl.inventory import host_port
from sparkctl.ssh import resolve

# ssh may have to log in to two hosts before anything comes.
LEAST_TIMEOUT_S = 30.0
_ALONE = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15")

Address = tuple[str, int]


class Tunnel:
    """A way to what one host reaches. ``arguments`` are those of ssh, ``host`` is where it logs in."""

    def __init__(self, arguments: Sequence[str], host: str) -> None:
        self._arguments = tuple(arguments)
        self._host = host
        self._processes: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def connect(self, address: Address, timeout: float | None = None, *_source: Any) -> socket.socket:
        """A socket that ssh connects to ``address``, as ``socket.create_connection``. If ssh does not get there,
        the other end is closed, and ``reason`` says why.
        """
        self._reap()
        ours, theirs = socket.socketpair()
        ours.settimeout(None if timeout is None else max(timeout, LEAST_TIMEOUT_S))
        command = ["ssh", *self._arguments, *_ALONE, "-W", host_port(*address), "--", self._host]
        told: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        with theirs:
            end = theirs.fileno()
            process = subprocess.Popen(command, stdin=end, stdout=end, stderr=told)
        self._processes.append((process, told))
        return ours

    def handlers(self, context: ssl.SSLContext | None = None) -> list[urllib.request.BaseHandler]:
        """Handlers of urllib that connect through ssh."""
        return [_Http(self), _Https(self, context)]

    def reason(self) -> str:
        """Why ssh did not get to the last address, in its words; empty if it did."""
        if not self._processes:
            return ""
        process, told = self._processes[-1]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        told.seek(0)
        lines = told.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _reap(self) -> None:
        """Each process ends by itself when its connection is closed."""
        ended = [pair for pair in self._processes if pair[0].poll() is not None]
        for pair in ended:
            pair[1].close()
            self._processes.remove(pair)


def tunnel_to(arguments: Sequence[str], host: str, service: str) -> Tunnel | None:
    """The way to the services of a host, whose ssh is at ``host``: None if this machine reaches them directly, at
    ``service``. It does if they have the same address and no bastion is between. Raises ``Error``.
    """
    is_direct = host == service and not resolve(arguments, host).proxy
    return None if is_direct else Tunnel(arguments, host)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, tunnel: Tunnel) -> None:
        super().__init__()
        self._tunnel = tunnel

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, tunnel=self._tunnel), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, tunnel: Tunnel, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tunnel, self._trusted = tunnel, context or ssl.create_default_context()

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, tunnel=self._tunnel, trusted=self._trusted), req)


class _Connection(http.client.HTTPConnection):
    """HTTP through a tunnel, by TLS if there is a context that says whom to trust."""

    def __init__(
        self,
        host: str,
        *,
        tunnel: Tunnel,
        trusted: ssl.SSLContext | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(host, timeout=timeout)
        if trusted and ":" not in host.rpartition("]")[2]:
            self.port = http.client.HTTPS_PORT
        self._tunnel, self._trusted = tunnel, trusted

    def connect(self) -> None:
        self.sock = self._tunnel.connect((self.host, self.port), self.timeout)
        if self._trusted:
            self.sock = self._trusted.wrap_socket(self.sock, server_hostname=self.host)
