"""Serves /metrics, /livez, /readyz, /status and the status page over HTTP, for people, Prometheus and probes.

The port is bound at start-up. If a configured port is in use, the start-up fails. The default port gives way
to a free one, with a warning, because a user who never configured HTTP should still get a broker. The HTTP
library and prometheus_client are loaded by the first request, so they cost neither start-up time nor an idle
broker's memory. A failure here costs the client its response, and the broker nothing. Connections and their
times are limited, only a request line and headers are read, and each page is rendered once a second at most.
BrokerServer provides the content as functions, and `http_security` the protection.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import host_port
from broker.metrics.registry import Metrics
from broker.network.acceptor import BindError
from broker.server.http.http_connections import HttpConnection, HttpConnections
from broker.server.http.http_security import NO_SECURITY, HttpSecurity
from broker.server.http.shared_page import SharedPage
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.tls import Wrap
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.lean_import import import_lean
from broker.utils.refusal_log import log_refusal

if TYPE_CHECKING:
    from broker.server.http.overview import Overview

_log = structlog.get_logger(__name__)
# For a request's complete head, and for a complete response: a client that sends or reads slowly
# is disconnected.
REQUEST_TIMEOUT_S: Final = 5.0
# Limits even a connection that is always busy.
MAX_REQUESTS_PER_CONNECTION: Final = 1000
_BACKLOG: Final = 16
_REMEDIES: Final[Mapping[int | None, str]] = {
    errno.EADDRINUSE: "stop the other process or change landline.http.port (-1 turns it off)",
    errno.EACCES: "change landline.http.port (-1 turns it off)",
}
_OTHER_REMEDY: Final = "set landline.http.host to an address of this host, or remove it"
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"

Answer = tuple[int, str, bytes]


def start_http(
    config: BrokerConfig,
    metrics: Metrics,
    steps: StartupSteps,
    *,
    status: Callable[[], Mapping[str, Any]],
    unready_reasons: Callable[[], list[str]],
    is_alive: Callable[[], bool],
    wrap: Wrap | None,
    overview: Callable[[], Overview] | None = None,
) -> HttpEndpoint:
    """Starts the HTTP port that is configured; ``wrap`` is its TLS. ``steps`` stop it. Raises BindError, and
    ConfigError for a file of tokens that cannot be used.
    """
    endpoint = HttpEndpoint(
        config.str("landline.http.host"),
        config.int("landline.http.port"),
        metrics,
        status=status,
        overview=overview,
        unready_reasons=unready_reasons,
        is_alive=is_alive,
        is_default_port="landline.http.port" not in config.static_values,
        security=HttpSecurity.of(config, wrap),
    )
    steps.undo_by("HttpEndpoint", endpoint.shutdown)
    endpoint.startup()
    return endpoint


class HttpEndpoint:
    """The broker's HTTP port. Its cost is limited, whoever sends requests. Owns the socket and the threads
    that serve it.

    ``status`` returns the JSON of `/status`, ``overview`` what the status page shows; None for no such page.
    ``unready_reasons`` returns why the broker is not ready, empty if it is. ``is_alive`` is the watchdog's
    check. ``is_default_port``: ``port`` was not configured.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        *,
        status: Callable[[], Mapping[str, Any]],
        unready_reasons: Callable[[], list[str]],
        is_alive: Callable[[], bool],
        overview: Callable[[], Overview] | None = None,
        is_default_port: bool = False,
        security: HttpSecurity = NO_SECURITY,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._status = status
        self._unready_reasons = unready_reasons
        self._is_alive = is_alive
        self._is_default_port = is_default_port
        self._security = security
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._connections = HttpConnections()
        self._exposition: Any = None
        self._pages = {
            "/metrics": SharedPage(lambda: _guarded("/metrics", self._metrics_page), clock),
            "/status": SharedPage(lambda: _guarded("/status", self._status_page), clock),
        }
        if overview is not None:
            self._pages["/"] = SharedPage(lambda: _guarded("/", lambda: _html_page(overview())), clock)
        self.port = -1

    def startup(self) -> None:
        """Binds the port (then in ``port``) and starts serving; -1 turns HTTP
        off. Raises :class:`BindError`.
        """
        if self._port < 0:
            return
        self._socket = self._bind_or_move()
        self.port = self._socket.getsockname()[1]
        if self._port not in (0, self.port):
            _log.warning(
                "http_port_in_use",
                port=self._port,
                taken_instead=self.port,
                message="set landline.http.port to choose one, -1 turns HTTP off",
            )
        self._thread = threading.Thread(target=self._accept, name="http-acceptor", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Closes the port; idempotent."""
        channel, self._socket = self._socket, None
        if channel is None:
            return
        with suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)  # wakes the acceptor
        channel.close()
        if self._thread is not None:
            self._thread.join()

    @property
    def url(self) -> str:
        """Its URL; empty if HTTP is off."""
        if self.port < 0:
            return ""
        return f"{self._security.scheme}://{host_port(self._host or '127.0.0.1', self.port)}"

    def answer(self, target: str, authorization: str | None, address: str) -> Answer:
        """Status, content type and body for a GET of ``target`` from ``address``."""
        path = target.partition("?")[0]
        if not self._security.admits(path, authorization, address):
            return 401, _TEXT, b"a token is needed, see landline.http.token.file\n"
        match path:
            case _ if path in self._pages:
                return self._pages[path].get()
            case "/livez":
                alive = self._is_alive()
                return (200, _TEXT, b"alive\n") if alive else (503, _TEXT, b"the event loop hangs\n")
            case "/readyz":
                reasons = self._unready_reasons()
                return 503 if reasons else 200, _JSON, _json({"ready": not reasons, "reasons": reasons})
            case _:
                return 404, _TEXT, b"there are / /metrics /livez /readyz /status\n"

    def _bind_or_move(self) -> socket.socket:
        try:
            return self._bind(self._port)
        except (OSError, UnicodeError) as error:  # UnicodeError: it cannot be a host's name
            number = getattr(error, "errno", None)
            in_use = number == errno.EADDRINUSE
            if in_use and self._is_default_port:
                return self._bind(0)
            raise BindError(
                f"cannot bind the HTTP endpoint to {host_port(self._host or '*', self._port)}: "
                f"{'the port is in use' if in_use else error}; {_REMEDIES.get(number, _OTHER_REMEDY)}"
            ) from error

    def _bind(self, port: int) -> socket.socket:
        if self._host:
            return self._listen(socket.AF_INET6 if ":" in self._host else socket.AF_INET, port)
        try:
            return self._listen(socket.AF_INET6, port)  # which serves IPv4 as well
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            return self._listen(socket.AF_INET, port)  # IPv6 is disabled here

    def _listen(self, family: socket.AddressFamily, port: int) -> socket.socket:
        channel = socket.socket(family, socket.SOCK_STREAM)
        try:
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not self._host else 1)
            channel.bind((self._host, port))
            channel.listen(_BACKLOG)
        except BaseException:
            channel.close()
            raise
        return channel

    def _metrics_page(self) -> Answer:
        if self._exposition is None:
            from broker.metrics.exposition import Exposition

            self._exposition = Exposition(self._metrics)
        from broker.metrics.exposition import CONTENT_TYPE

        return 200, CONTENT_TYPE, self._exposition.text()

    def _status_page(self) -> Answer:
        return 200, _JSON, _json(self._status())

    def _accept(self) -> None:
        channel = self._socket
        while channel is not None:
            try:
                connection, address = channel.accept()
            except OSError as error:
                if self._socket is None:
                    return
                _log.warning("http_accept_failed", error=str(error))
                threading.Event().wait(0.1)  # probably out of file descriptors: wait until some are free
                continue
            admitted = self._connections.admit(connection, address[0])
            if admitted is None:
                connection.close()
                continue
            try:
                admitted.socket = self._security.wrapped(connection)
            except OSError:  # the client has gone
                self._connections.leave(admitted)
                continue
            serving = threading.Thread(
                target=self._serve, args=(admitted, address), name="http-connection", daemon=True
            )
            try:
                serving.start()
            except RuntimeError as error:  # the host has no thread left: the next client may find one
                log_refusal(
                    "http_connection_refused", admitted.address, str(error), action="connection closed"
                )
                self._connections.leave(admitted)
                admitted.socket.close()

    def _serve(self, connection: HttpConnection, address: Any) -> None:
        try:
            if self._secure(connection):
                self._respond(connection, address)
        except OSError:
            pass  # the client left or stalled: nothing is lost here
        except Exception:
            _log.exception("http_connection_failed", peer=str(address))
        finally:
            self._connections.leave(connection)
            connection.socket.close()

    def _secure(self, connection: HttpConnection) -> bool:
        try:
            self._security.shake_hands(connection.socket, REQUEST_TIMEOUT_S)
        except OSError as error:
            if not connection.is_put_out:
                log_refusal(
                    "http_handshake_failed", connection.address, str(error), action="connection closed"
                )
            return False
        return True

    def _respond(self, connection: HttpConnection, address: Any) -> None:
        import_lean("http.server")  # only the exposition, loaded later, imports ssl too
        from broker.server.http.http_handler import serve_connection

        def answer(target: str, authorization: str | None) -> Answer:
            return _guarded(target, lambda: self.answer(target, authorization, connection.address))

        serve_connection(connection, address, answer, MAX_REQUESTS_PER_CONNECTION, REQUEST_TIMEOUT_S)


def _guarded(path: str, answer: Callable[[], Answer]) -> Answer:
    try:
        return answer()
    except Exception:
        _log.exception("http_request_failed", path=path.partition("?")[0][:100])
        return 500, _TEXT, b"failed, see the broker's log\n"


def _html_page(overview: Overview) -> Answer:
    from broker.server.http.http_handler import HTML
    from broker.server.http.status_page import html_of

    return 200, HTML, html_of(overview)


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, default=str).encode() + b"\n"
