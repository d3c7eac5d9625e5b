"""Handles requests that only brokers send, from peers not known as brokers: the peer is looked up
first, separately.

The handlers of brokers' requests are reserved for brokers, so no request of an unknown peer is queued there.
One thread looks up peers, because it waits for the store and name servers; what waits for it is small and
bounded. A large request is not kept: if the peer turns out to be a broker, its connection is closed, and it
sends unanswered requests again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from broker.network.request_channel import Request, Verdict
from broker.protocol.api_keys import APIS
from broker.server.apis.context import ApiContext
from broker.server.broker_peers import Standing
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_MOST_KEPT: Final = 64 * 1024


def introduce(
    request: Request,
    ctx: ApiContext,
    admitted: Callable[[], None],
    refused: Callable[[], None],
    *,
    keeps_body: bool = True,
) -> Verdict:
    """Looks up a peer that :meth:`BrokerPeers.knows` does not know.

    Calls ``admitted`` or ``refused``, or closes the connection. ``admitted`` is only called on the look-up
    thread, so it should pass on long work. ``keeps_body``: ``admitted`` needs the request's body.
    """
    api, peers = APIS[request.api_key].name, ctx.peers
    standing = peers.standing(request.connection)
    if standing is Standing.REFUSED:
        peers.tell_refused(request.connection, api)
        refused()
        return Verdict.SERVED
    came_ms = ctx.clock.monotonic_ms()
    is_kept = keeps_body and len(request.body) <= _MOST_KEPT
    if is_kept:
        request.keep()
    else:
        request.body = memoryview(b"")

    def look_up() -> None:
        found = peers.look_up(request.connection, came_ms)
        if found is Standing.BROKER and (is_kept or not keeps_body):
            admitted()
        elif found is Standing.REFUSED:
            peers.tell_refused(request.connection, api)
            refused()
        else:
            _put_off(request, api, found)

    if standing is Standing.CROWDED or not ctx.submit_of_stranger(_guarded(request, look_up), request):
        _put_off(request, api, standing)
        return Verdict.SERVED
    return Verdict.QUEUED


def _guarded(request: Request, work: Callable[[], None]) -> Callable[[], None]:
    def guarded() -> None:
        if request.connection.gone:
            return
        try:
            work()
        except Exception:
            _log.exception("peer_not_looked_up", peer=request.connection.client_address)
            if not request.done:
                request.close_connection()

    return guarded


def _put_off(request: Request, api: str, standing: Standing) -> None:
    """Closes the connection: nothing was done, and no response says that something was refused. A broker
    retries and is known by then.
    """
    log_refusal(
        "broker_request_put_off",
        request.connection.client_address,
        "who sent it is being looked up in /brokers/ids"
        if standing is not Standing.CROWDED
        else "too many addresses of its network were looked up in this second",
        api=api,
        listener=request.connection.listener_name,
        action="connection closed; a broker sends it again",
    )
    request.close_connection()
