"""The Acceptor: one thread a listener that accepts connections and deals them to the Processors in turn."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas, TooManyConnectionsError
from broker.network.processor import Processor
from broker.network.request_channel import ConnectionInfo
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_FD_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 1.0  # the rate may be changed meanwhile


class BindError(Exception):
    """A listener's address cannot be had; the message says which and what to do."""


class Acceptor:
    """Owner of the listening socket: bound when made, listening from :meth:`start` on."""

    def __init__(self, endpoint: Endpoint, *, send_buffer: int, receive_buffer: int, backlog: int) -> None:
        self.endpoint = endpoint
        self._send_buffer = send_buffer
        self._backlog = backlog
        self._socket = _bind(endpoint, receive_buffer)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The bound port, also where port 0 was configured."""
        port: int = self._socket.getsockname()[1]
        return port

    def start(self, processors: Sequence[Processor], quotas: ConnectionQuotas) -> None:
        self._socket.listen(self._backlog)
        name = f"acceptor-{self.endpoint.listener_name}-{self.port}"
        self._thread = threading.Thread(target=self._run, args=(processors, quotas), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops accepting and frees the address."""
        self._stopped.set()
        with suppress(OSError):  # it never listened
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._socket.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self, processors: Sequence[Processor], quotas: ConnectionQuotas) -> None:
        turn = itertools.cycle(processors)
        for number in itertools.count():
            while (pause_s := quotas.pause_s(self.endpoint.listener_name)) > 0:
                if self._stopped.wait(min(pause_s, _LONGEST_PAUSE_S)):
                    return
            try:
                sock, address = self._socket.accept()
            except OSError as error:
                if self._stopped.is_set():
                    return
                self._on_accept_error(error)
                continue
            self._deal(sock, address, number, next(turn), quotas)

    def _on_accept_error(self, error: OSError) -> None:
        _log.error(
            "accept_failed",
            listener=self.endpoint.listener_name,
            error=str(error),
            action="raise LimitNOFILE" if error.errno in (errno.EMFILE, errno.ENFILE) else "none",
        )
        self._stopped.wait(_FD_PAUSE_S)

    def _deal(
        self,
        sock: socket.socket,
        address: tuple[str, int],
        number: int,
        to: Processor,
        quotas: ConnectionQuotas,
    ) -> None:
        host = address[0].removeprefix("::ffff:")
        try:
            quotas.add(host)
        except TooManyConnectionsError as error:
            log_refusal("connection_refused", host, str(error))
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        local = sock.getsockname()
        identity = f"{local[0]}:{local[1]}-{address[0]}:{address[1]}-{number}"
        to.adopt(
            sock, ConnectionInfo(identity, host, self.endpoint.listener_name, self.endpoint.security_protocol)
        )


def _bind(endpoint: Endpoint, receive_buffer: int) -> socket.socket:
    host = endpoint.host or None
    try:
        infos = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Every interface: one IPv6 socket serves both, where the machine has IPv6.
        infos.sort(key=lambda info: info[0] != socket.AF_INET6 if host is None else 0)
        return _first_bound(infos, receive_buffer, dual=host is None)
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else str(error)
        raise BindError(
            f"cannot bind listener {endpoint.listener_name}://{endpoint.host}:{endpoint.port}: {reason}; "
            "stop the other process or change listeners"
        ) from error


def _first_bound(
    infos: Sequence[tuple[int, int, int, str, Any]], receive_buffer: int, *, dual: bool
) -> socket.socket:
    error: OSError | None = None
    for family, kind, protocol, _, address in infos:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as refused:  # no IPv6 here
            error = refused
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
            if receive_buffer > 0:  # before listen, so that the window scale fits it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.bind(address)
        except OSError as refused:
            sock.close()
            if refused.errno == errno.EADDRINUSE:
                raise
            error = refused
            continue
        return sock
    raise error or OSError("no address")
