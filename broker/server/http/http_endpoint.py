"""/metrics, /livez, /readyz and /status over HTTP, for people, Prometheus and probes.

The port is bound at once, so that one in use stops the start-up when somebody chose it; the default one gives way to
a free one, with a warning: who never asked for HTTP is not refused a broker for it. The HTTP library and
prometheus_client are loaded with the first request, which keeps them out of start-up and of an idle broker's
memory. Whatever goes wrong here costs the client its answer and the broker nothing: connections and their times are
bounded, nothing but a request line and headers is read, and /metrics and /status are made once a second at most. What
the answers say is given by BrokerServer as functions.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from broker.config.endpoint import host_port
from broker.metrics.registry import Metrics
from broker.network.acceptor import BindError
from broker.server.http.http_connections import HttpConnection, HttpConnections
from broker.server.http.shared_page import SharedPage
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.lean_import import import_lean

_log = structlog.get_logger(__name__)
# For the whole head of a request, and for the whole of an answer: however a client spreads its bytes, it is let go.
REQUEST_TIMEOUT_S: Final = 5.0
# One connection, however busy it keeps itself.
MAX_REQUESTS_PER_CONNECTION: Final = 1000
_BACKLOG: Final = 16
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"

Answer = tuple[int, str, bytes]


class HttpEndpoint:
    """The HTTP port beside the broker. What it costs is bounded, whoever asks. Owns the socket and the
    threads that serve it.

    ``status`` gives the JSON of `/status`; ``unready_reasons`` why the broker is not ready, none when it is;
    ``is_alive`` is what the watchdog asks. ``is_default_port`` says that nobody chose ``port``.
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
        is_default_port: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._status = status
        self._unready_reasons = unready_reasons
        self._is_alive = is_alive
        self._is_default_port = is_default_port
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._connections = HttpConnections()
        self._exposition: Any = None
        self._pages = {
            "/metrics": SharedPage(lambda: _guarded("/metrics", self._metrics_page), clock),
            "/status": SharedPage(lambda: _guarded("/status", self._status_page), clock),
        }
        self.port = -1

    def startup(self) -> None:
        """Takes the port (``port`` then tells it) and begins to answer; -1 is off. Raises
        :class:`BindError`.
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
        """Where it answers, as people type it; empty when it is off."""
        if self.port < 0:
            return ""
        return f"http://{host_port(self._host or '127.0.0.1', self.port)}"

    def answer(self, path: str) -> Answer:
        """Status, content type and body for a GET of ``path``."""
        match path.partition("?")[0]:
            case "/metrics" | "/status" as shared:
                return self._pages[shared].get()
            case "/livez":
                alive = self._is_alive()
                return (200, _TEXT, b"alive\n") if alive else (503, _TEXT, b"the event loop hangs\n")
            case "/readyz":
                reasons = self._unready_reasons()
                return 503 if reasons else 200, _JSON, _json({"ready": not reasons, "reasons": reasons})
            case _:
                return 404, _TEXT, b"there are /metrics /livez /readyz /status\n"

    def _bind_or_move(self) -> socket.socket:
        try:
            return self._bind(self._port)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            if in_use and self._is_default_port:
                return self._bind(0)
            raise BindError(
                f"cannot bind the HTTP endpoint to {host_port(self._host or '*', self._port)}: "
                f"{'the port is in use' if in_use else error}; "
                "stop the other process or change landline.http.port (-1 turns it off)"
            ) from error

    def _bind(self, port: int) -> socket.socket:
        if self._host:
            return self._listen(socket.AF_INET6 if ":" in self._host else socket.AF_INET, port)
        try:
            return self._listen(socket.AF_INET6, port)  # which takes IPv4 as well
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            return self._listen(socket.AF_INET, port)  # IPv6 is switched off here

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
                threading.Event().wait(0.1)  # out of descriptors, most likely: others must get some first
                continue
            admitted = self._connections.admit(connection, address[0])
            if admitted is None:
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(admitted, address), name="http-connection", daemon=True
            ).start()

    def _serve(self, connection: HttpConnection, address: Any) -> None:
        import_lean("http.server")  # nothing else here imports ssl but the exposition, which comes after it
        from broker.server.http.http_handler import serve_connection

        try:
            serve_connection(
                connection, address, self._answer_or_failure, MAX_REQUESTS_PER_CONNECTION, REQUEST_TIMEOUT_S
            )
        except OSError:
            pass  # the client left or stalled: nothing of ours is lost
        except Exception:
            _log.exception("http_connection_failed", peer=str(address))
        finally:
            self._connections.leave(connection)
            connection.socket.close()

    def _answer_or_failure(self, path: str) -> Answer:
        return _guarded(path, lambda: self.answer(path))


def _guarded(path: str, answer: Callable[[], Answer]) -> Answer:
    try:
        return answer()
    except Exception:
        _log.exception("http_request_failed", path=path[:100])
        return 500, _TEXT, b"failed, see the broker's log\n"


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, default=str).encode() + b"\n"
