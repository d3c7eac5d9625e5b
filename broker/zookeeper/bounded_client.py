"""kazoo's client, made to send no request that is larger than ZooKeeper takes.

A server closes the connection that brings a larger one, and does not say why. The request would be sent again over
each next connection, and all that others have asked for meanwhile would be lost with each.
"""

from __future__ import annotations

from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.serialization import Transaction

from broker.zookeeper.store import TooLargeError

_HEADER_BYTES: Final = 8  # the number and the type of a request


class BoundedClient(KazooClient):
    """A client whose requests have at most ``most_bytes``. A larger one fails with TooLargeError."""

    def __init__(self, most_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._most_bytes = most_bytes

    def _call(self, request: Any, async_object: IAsyncResult) -> bool | None:
        size = _HEADER_BYTES + len(request.serialize())
        if size <= self._most_bytes:
            return super()._call(request, async_object)
        async_object.set_exception(_too_large(request, size, self._most_bytes))
        return False  # as kazoo itself says that a request has failed


def _too_large(request: Any, size: int, most_bytes: int) -> TooLargeError:
    """Names the largest part: the others of a multi are not what is wrong."""
    parts = request.operations if isinstance(request, Transaction) else [request]
    sizes = [len(part.serialize()) for part in parts]
    index = sizes.index(max(sizes))
    path = getattr(parts[index], "path", None) or parts[index].paths[0]
    return TooLargeError(
        f"{path}: the request has {size} bytes, and ZooKeeper takes {most_bytes}: keep less in this znode, or raise "
        "jute.maxbuffer of all ZooKeeper servers and then landline.zookeeper.jute.maxbuffer",
        index,
    )
