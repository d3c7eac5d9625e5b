"""``throttle_time_ms`` in encoded responses: handlers leave it at 0, and it is written where it belongs when
the response is sent.

It is the first field of most responses that have it. In those of ApiVersions and about delegation tokens only
tagged fields follow it, and in OffsetDelete's it follows an error code. Produce encodes its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.primitives import INT32

# The first version with the field, for APIs that do not have it in all.
_FROM: Final[Mapping[int, int]] = {
    ApiKey.FETCH: 1,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 3,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.SYNC_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.API_VERSIONS: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
}
_SASL: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_WITHOUT: Final = frozenset(
    (
        *_SASL,
        ApiKey.PRODUCE,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
    )
)
# From here on the tag of finalized_features_epoch and the number of tags follow the field in ApiVersions.
_TAGGED_FROM: Final = 3
_TAGS_BYTES: Final = 11
_TOKENS: Final = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
_TOKENS_FLEXIBLE_FROM: Final = 2
_ERROR_CODE_BYTES: Final = 2


def throttle_position(api_key: int, version: int) -> int | None:
    """Where the field begins in the body, from its end if negative; None if it is not there, or in Produce."""
    if api_key in _WITHOUT or version < _FROM.get(api_key, 0):
        return None
    if api_key == ApiKey.API_VERSIONS:
        return -INT32.size - (_TAGS_BYTES if version >= _TAGGED_FROM else 0)
    if api_key in _TOKENS:
        return -INT32.size - (1 if version >= _TOKENS_FLEXIBLE_FROM else 0)
    return _ERROR_CODE_BYTES if api_key == ApiKey.OFFSET_DELETE else 0


def with_throttle_time(api_key: int, version: int, body: bytes, throttle_ms: int) -> bytes:
    """The body with the throttle time in milliseconds; the same body if it has no field for it."""
    position = throttle_position(api_key, version)
    if position is None:
        return body
    if position < 0:
        position += len(body)
    return b"".join((body[:position], INT32.pack(throttle_ms), body[position + INT32.size :]))
