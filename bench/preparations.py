"""What hostile peers need: topics and groups that are expensive to return, created before the victim's
first run.

Each returns the name of what it created, which is the peers' own topic or group.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException

from bench.client.connection import Connection
from bench.client.group import Group, await_coordinator
from bench.client.requests import RawClientError
from bench.visit import Visit, pause
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.framing import request_prefix, response_body_offset

CLIENT_ID: Final = "hostile"
GROUPS: Final = 2_000
WIDE: Final = 1_000
MEMBERS: Final = 100
# All members are one record of the offsets topic, which is limited to a mebibyte.
MEMBER_BYTES: Final = 8 << 10
SEGMENT_BYTES: Final = (14, 1_024, 1 << 20)
ANSWER_ROOM: Final = 4 << 20
SET_UP_TIMEOUT_S: Final = 60.0


def frame(api_key: ApiKey, version: int, body: bytes) -> bytes:
    """A whole request."""
    return request_prefix(api_key, version, 1, CLIENT_ID, len(body)) + body


def encoded(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    """A whole request, encoded from its fields."""
    return frame(api_key, version, codec.encode(api_key, version, "request", fields))


def many_groups(visit: Visit, topic: str) -> str:
    """Commits an offset for each of many groups."""
    port = await_coordinator(visit.broker.port, topic)
    for number in range(GROUPS):
        _commit(port, f"{topic}-{number}", topic, 1)
    return ""


def wide_topic(visit: Visit, topic: str) -> str:
    """A topic of many partitions, with an offset of the group ``topic`` for each."""
    wide = visit.fresh_topic(WIDE)
    _commit(await_coordinator(visit.broker.port, topic), topic, wide, WIDE)
    return wide


def compacted_topic(visit: Visit, _topic: str) -> str:
    """A topic whose batches the broker must inspect."""
    return visit.fresh_topic(10, config={"cleanup.policy": "compact"})


def rolling_topic(visit: Visit, _topic: str) -> str:
    """A topic whose segments are as small as the broker allows."""
    for size in SEGMENT_BYTES[:-1]:
        with suppress(KafkaException):
            return visit.fresh_topic(10, config={"segment.bytes": str(size)})
    return visit.fresh_topic(10, config={"segment.bytes": str(SEGMENT_BYTES[-1])})


def fat_group(visit: Visit, topic: str) -> str:
    """A stable group of many members with long metadata.

    Its members have disconnected when it returns, and stay in the group until their sessions expire, after
    the row. Members of earlier rows may still use up the broker's memory for groups, so this is retried until
    they are gone.
    """
    end = time.monotonic() + SET_UP_TIMEOUT_S
    for number in itertools.count():
        try:
            return _fat_group(visit, f"{topic}-fat-{number}")
        except RawClientError:
            if time.monotonic() > end:
                raise
            pause(0.5)
    raise AssertionError


def _fat_group(visit: Visit, name: str) -> str:
    group = Group(await_coordinator(visit.broker.port, name), name, bytes(MEMBER_BYTES))
    try:
        group.add(1)
        group.settle()
        group.add(MEMBERS - 1)
        group.settle()
    finally:
        group.close()
    return name


def _commit(port: int, group: str, topic: str, partitions: int) -> None:
    committed = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": ""}
        for number in range(partitions)
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": committed}],
    }
    ask_until_done(port, ApiKey.OFFSET_COMMIT, 7, fields)


def ask_until_done(port: int, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
    """Retries until no partition is answered with an error: a coordinator may still be loading."""
    end = time.monotonic() + SET_UP_TIMEOUT_S
    connection = Connection(port, ANSWER_ROOM)
    try:
        while True:
            answer = connection.ask(encoded(api_key, version, fields))
            decoded = codec.decode(
                api_key, version, "response", answer[response_body_offset(api_key, version, answer) :]
            )
            errors = {each.error_code for topic in decoded.topics for each in topic.partitions} - {0}
            if not errors:
                return
            if time.monotonic() > end:
                raise RawClientError(f"{api_key.name} was answered with {errors}")
            pause(0.1)
    finally:
        connection.close()
