"""Sends the responses of Fetch: records go from the file to the socket, from memory only.

Data that is not in the page cache is first read in by a handler thread, so that no connection waits for another's disk
access. Once a reader has reached such data, its next fetches are handled there too.
"""

from __future__ import annotations

from typing import Final

from broker.log import look_ups
from broker.log.log import Log
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fetch_messages import FetchedPartition, encode_fetch_response
from broker.protocol.fetch_requests import TopicKey
from broker.server.apis.context import ApiContext
from broker.server.apis.current_leaders import CurrentLeaders
from broker.server.fetch_sessions import Outcome
from broker.utils.file_region import FileRegion
from broker.utils.refusal_log import log_refusal

_NO_ERROR: Final = Errors.NONE  # looked up here once, and not for each partition
_LED_ELSEWHERE: Final = (Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH)
# A connection whose fetch was of data on the disk reads on there, mostly.
_COLD_FETCHES: Final = 8


def answer(request: Request, outcome: Outcome, ctx: ApiContext) -> None:
    """Sends the response; a handler first brings in what may not be in memory."""
    payload = frame(request, outcome, ctx)
    regions = _regions(outcome, ctx)
    connection = request.connection
    left = connection.cold_fetches
    if not all(look_ups.is_cached(region) for _, region in regions):
        left = _COLD_FETCHES + 1
    connection.cold_fetches = max(left - 1, 0)
    # What the kernel reads ahead arrives in any order: the first and the last page do not tell of those between.
    if (
        not left
        or not regions
        or not ctx.submit_for(
            request, lambda: _bring_in_and_respond(request, payload, regions), asks_only=True
        )
    ):
        request.respond(payload)


def frame(
    request: Request, outcome: Outcome, ctx: ApiContext, throttle_ms: int = 0
) -> list[bytes | FileRegion]:
    """The response as pieces, with the leaders of partitions that are led elsewhere."""
    leaders: CurrentLeaders | None = None
    by_topic: dict[TopicKey, list[FetchedPartition]] = {}
    last: TopicKey | None = None
    of_topic: list[FetchedPartition] = []
    for wanted, result in outcome.results:
        topic = wanted.topic
        if topic is not last:  # most partitions follow another one of their topic
            last, of_topic = topic, by_topic.setdefault(topic, [])
        if result.error is _NO_ERROR or result.error not in _LED_ELSEWHERE:
            of_topic.append(result)
            continue
        if leaders is None:
            leaders = CurrentLeaders(request, ctx)
        leader = leaders.of(wanted.topic_partition)
        of_topic.append(FetchedPartition(result.partition, result.error, leader=leader))
    return encode_fetch_response(
        request.api_version,
        request.correlation_id,
        by_topic,
        outcome.error,
        outcome.session_id,
        throttle_ms=throttle_ms,
        endpoints=() if leaders is None else leaders.endpoints,
    )


def _regions(outcome: Outcome, ctx: ApiContext) -> list[tuple[Log, FileRegion]]:
    """What the response has of logs, without what was just written."""
    regions = []
    for wanted, result in outcome.results:
        if result.records is not None:
            log = ctx.replica_manager.local_log(wanted.topic_partition)
            if log is not None and not log.reader.is_fresh(result.records):
                regions.append((log, result.records))
    return regions


def _bring_in_and_respond(
    request: Request, payload: list[bytes | FileRegion], regions: list[tuple[Log, FileRegion]]
) -> None:
    try:
        for log, region in regions:
            log.reader.bring_in(region)
    except KafkaError as error:
        # The response is built and its session has advanced: the reader retries and then gets the error.
        log_refusal("fetch_given_up", request.connection.client_address, str(error))
        request.close_connection()
    else:
        request.respond(payload[:])
    payload.clear()  # as when the response is collected: they would keep the files open
    regions.clear()
