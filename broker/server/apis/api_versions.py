"""ApiVersions: the first request of every client, so it is encoded by hand and needs no codec loaded.

Response versions 3 and 4 carry finalized_features_epoch=0 as their only tagged field, as Kafka 3.9 does
on ZooKeeper; an error has none.
"""

from __future__ import annotations

import re
from functools import cache
from struct import Struct

from broker.network.request_channel import Request, Verdict
from broker.protocol.api_keys import APIS, OF_CONSUMER_GROUPS, ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.framing import response_prefix
from broker.protocol.primitives import INT32, LONGEST_STRING, read_uvarint, skip_tags, too_long, write_uvarint
from broker.server.apis.context import ApiContext

_RANGE = Struct(">hhh")
_INT16 = Struct(">h")
_FEATURES_EPOCH = b"\x01\x01\x08" + bytes(8)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: Request, ctx: ApiContext) -> Verdict:
    """Responds to an unknown version in version 0, with UNSUPPORTED_VERSION and the full list (KIP-511)."""
    version = request.api_version
    if not 0 <= version <= APIS[ApiKey.API_VERSIONS].max_version:
        version, error = 0, Errors.UNSUPPORTED_VERSION
    else:
        error = Errors.NONE if version < 3 or _is_named(request.body) else Errors.INVALID_REQUEST
    body = encode(version, error, consumer_groups=ctx.group_coordinator.consumers.enabled)
    if request.meter is not None and version == request.api_version:
        body = request.metered(body)
    request.respond(
        (response_prefix(ApiKey.API_VERSIONS, version, request.correlation_id, len(body)) + body,)
    )
    return Verdict.SERVED


@cache
def encode(version: int, error: Errors, *, consumer_groups: bool = True) -> bytes:
    """The body of the response."""
    served = APIS if consumer_groups else APIS.keys() - OF_CONSUMER_GROUPS
    keys = [APIS[key] for key in sorted(served)] if error is not Errors.INVALID_REQUEST else []
    if version >= 3:
        epoch = b"\0" if error is Errors.INVALID_REQUEST else _FEATURES_EPOCH
        ranges = b"".join(_RANGE.pack(api.key, api.min_version, api.max_version) + b"\0" for api in keys)
        return _INT16.pack(error) + write_uvarint(len(keys) + 1) + ranges + INT32.pack(0) + epoch
    ranges = b"".join(_RANGE.pack(api.key, api.min_version, api.max_version) for api in keys)
    body = _INT16.pack(error) + INT32.pack(len(keys)) + ranges
    return body + INT32.pack(0) if version >= 1 else body


def _is_named(body: memoryview) -> bool:
    """Whether the client software name and version are valid by KIP-511. Raises :class:`ProtocolError`."""
    try:
        position = 0
        texts = []
        for _ in range(2):
            size, position = read_uvarint(body, position)
            if size > LONGEST_STRING + 1:
                raise too_long(size - 1)
            end = position + max(size - 1, 0)
            if end > len(body):
                raise ProtocolError(f"truncated ApiVersions: {end} bytes announced, {len(body)} came")
            texts.append(str(body[position:end], "utf-8"))
            position = end
        skip_tags(body, position)
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"truncated ApiVersions: {error}") from error
    return all(_SOFTWARE.fullmatch(text) for text in texts)
