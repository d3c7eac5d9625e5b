"""Puts the replies of a connection's authentication among its responses, in their order."""

from __future__ import annotations

from functools import partial

import structlog

from broker.network.connection import UNANSWERED, Connection
from broker.network.request_channel import NO_API, Request
from broker.network.sasl import ConnectionLogin
from broker.protocol.errors import ProtocolError
from broker.sasl.apart import AskLater

_log = structlog.get_logger(__name__)
_NO_BODY = memoryview(b"")


def begin_login(connection: Connection, login: ConnectionLogin) -> None:
    """Makes a new connection take only frames of its authentication."""
    connection.login = login
    connection.max_frame_bytes = login.max_frame_bytes


def took_frame(
    connection: Connection, login: ConnectionLogin, frame: memoryview, now_ns: int, max_frame_bytes: int
) -> bool:
    """Whether the frame was part of the authentication, and has its reply. Otherwise it is a request to serve.

    After a failure the connection is muted, and its reply comes later. Raises :class:`ProtocolError`. It is muted
    too while the reply is computed on another thread; then it gets the same frame again.
    """
    try:
        reply = login.receive(frame, now_ns)
    except ProtocolError:
        raise
    except AskLater as later:
        connection.give_back(frame)
        connection.muted |= UNANSWERED
        _compute(later, login, _pending(connection, NO_API, now_ns))
        return True
    except Exception as error:
        _log.exception("authentication_crashed", peer=connection.info.client_address)
        raise ProtocolError("the authentication failed in the broker; see its log") from error
    if reply is None:
        return False
    request = _pending(connection, reply.api_key, now_ns)
    if reply.failure is not None:
        connection.muted |= UNANSWERED
        _pending(connection, reply.api_key, now_ns).close_connection()
        answer = () if reply.payload is None else (reply.payload,)
        login.delay(partial(request.respond, answer))
        return True
    connection.max_frame_bytes = login.max_frame_bytes if login.is_new else max_frame_bytes
    request.respond(() if reply.payload is None else (reply.payload,))
    return True


def _compute(later: AskLater, login: ConnectionLogin, waiting: Request) -> None:
    def work() -> None:
        later.compute()
        waiting.respond_nothing()

    login.work_apart(work)


def _pending(connection: Connection, api_key: int, now_ns: int) -> Request:
    """A request of the connection whose response is due next."""
    request = Request(api_key, 0, 0, None, _NO_BODY, connection.info, now_ns, connection.on_answer)
    connection.in_flight.append(request)
    return request
