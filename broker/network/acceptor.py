"""The Acceptor: one thread per listener that accepts connections and hands them to the Processors in turn.

At ``max.connections`` it stops accepting, and new connections wait in the kernel's backlog. The inter-broker
listener is exempt, except from limits of its own. Above ``max.connection.creation.rate`` connections are
still accepted, because their addresses are unknown until then. They then wait and are served by address in
turn (:mod:`.arrivals`).
"""

from __future__ import annotations

import errno
import itertools
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from broker.config.endpoint import Endpoint
from broker.network import pacing
from broker.network.arrivals import Arrivals, has_gone
from broker.network.connection_quotas import ConnectionQuotas, TooManyConnectionsError
from broker.network.ip_rates import HeldSockets
from broker.network.processor import Processor
from broker.network.request_channel import ConnectionInfo
from broker.network.transport import PlainTransport, Security
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_FD_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 1.0  # the rate may change meanwhile
_FULL_PAUSE_S = 0.05
_NO_ROOM_PAUSE_S = 0.005  # 50 connections from one address pass in a quarter of a second


class BindError(Exception):
    """A listener's address cannot be bound; the message names the address and the remedy."""


class Acceptor:
    """A listener's acceptor; Kafka's Acceptor. Owns the listening socket: bound when constructed, listening
    from :meth:`start` on.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        send_buffer: int,
        receive_buffer: int,
        backlog: int,
        security: Security | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._security = security
        self._send_buffer = send_buffer
        self._backlog = backlog
        self._socket = _bind(endpoint, receive_buffer)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._arrivals: Arrivals[tuple[socket.socket, tuple[str, int]]] = Arrivals()
        self._held = HeldSockets()
        self._ready = select.poll()
        self._number = itertools.count()
        self._turn: Iterator[Processor] = iter(())

    @property
    def port(self) -> int:
        """The bound port, also when port 0 was configured."""
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
        with suppress(OSError):  # it was never listening
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._socket.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self, processors: Sequence[Processor], quotas: ConnectionQuotas) -> None:
        self._turn = itertools.cycle(processors)
        self._ready.register(self._socket, select.POLLIN)
        while not self._stopped.is_set():
            try:
                self._accept(quotas)
            except OSError as error:
                if not self._stopped.is_set():
                    self._on_accept_error(error)
        while self._arrivals:
            host, (sock, _) = self._arrivals.next()
            self._refuse(sock, host, quotas)
        self._held.close_all()

    def _accept(self, quotas: ConnectionQuotas) -> None:
        """Hands out one waiting connection, or accepts one. Blocks until one arrives; while others wait, only
        for a limited time.
        """
        listener, pause_s = self.endpoint.listener_name, 0.0
        if self._arrivals:
            pause_s = min(quotas.pause_s(listener), _LONGEST_PAUSE_S)
            if pause_s <= 0:
                self._deal_next(quotas)
                return
        if (limit := quotas.why_full(listener)) is not None:
            log_refusal(
                "connections_wait",
                listener,
                f"{limit} reached",
                action=f"raise {limit.partition('=')[0]}, or lower max.connections.per.ip",
            )
            self._stopped.wait(_FULL_PAUSE_S)
            return
        wait_s = pause_s
        if self._held and (due_s := self._held.close_due()):
            wait_s = min(pause_s or due_s, due_s)
        if wait_s and not self._ready.poll(wait_s * 1_000):
            return
        sock, address = self._socket.accept()
        host = address[0].removeprefix("::ffff:")
        if quotas.ip_rates.enabled and (throttle_ms := quotas.ip_rates.throttle_ms(host, listener)):
            self._held.hold(sock, throttle_ms)
            return
        try:
            quotas.add(host, listener)
        except TooManyConnectionsError as error:
            log_refusal("connection_refused", host, str(error))
            sock.close()
            return
        if not pause_s and quotas.pause_s(listener) <= 0:
            self._deal(sock, host, address, quotas)
        elif not self._arrivals.add(host, (sock, address)):
            log_refusal(
                "connection_refused",
                host,
                "max.connection.creation.rate of the broker or of this listener is passed, and too many wait",
                listener=listener,
            )
            self._refuse(sock, host, quotas)
            self._stopped.wait(_NO_ROOM_PAUSE_S)  # meanwhile new ones queue in the kernel's backlog

    def _deal_next(self, quotas: ConnectionQuotas) -> None:
        while self._arrivals:
            host, (sock, address) = self._arrivals.next()
            if not has_gone(sock):
                self._deal(sock, host, address, quotas)
                return
            self._refuse(sock, host, quotas)

    def _refuse(self, sock: socket.socket, host: str, quotas: ConnectionQuotas) -> None:
        sock.close()
        quotas.remove(host, self.endpoint.listener_name)

    def _on_accept_error(self, error: OSError) -> None:
        _log.error(
            "accept_failed",
            listener=self.endpoint.listener_name,
            error=str(error),
            action="raise LimitNOFILE" if error.errno in (errno.EMFILE, errno.ENFILE) else "none",
        )
        self._stopped.wait(_FD_PAUSE_S)

    def _deal(
        self, sock: socket.socket, host: str, address: tuple[str, int], quotas: ConnectionQuotas
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        local = sock.getsockname()
        pacing.stop_within_host(sock, local[0], address[0])
        identity = f"{local[0]}:{local[1]}-{address[0]}:{address[1]}-{next(self._number)}"
        info = ConnectionInfo(identity, host, self.endpoint.listener_name, self.endpoint.security_protocol)
        adopt = next(self._turn).adopt
        if self._security is None:
            adopt(PlainTransport(sock), info)
        else:
            self._security.secure(sock, info, adopt, partial(quotas.remove, host, info.listener_name))


def _bind(endpoint: Endpoint, receive_buffer: int) -> socket.socket:
    host = endpoint.host or None
    try:
        infos = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Without a host: one IPv6 socket serves all interfaces for both families, if the machine has IPv6.
        infos.sort(key=lambda info: info[0] != socket.AF_INET6 if host is None else 0)
        return _first_bound(infos, receive_buffer, dual=host is None)
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else str(error)
        raise BindError(
            f"cannot bind listener {endpoint}: {reason}; stop the other process or change listeners"
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
            if receive_buffer > 0:  # before listen(), so that the TCP window scale matches
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
