"""Many ZooKeeper sessions in one process, each with one ephemeral node: the load of that many
brokers' starts.

The small part of ZooKeeper's protocol that this needs is implemented here. A client library has threads for
each session, and ten thousand of those would be measured instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Sequence

SESSION_MS = 18_000
"""A broker's zookeeper.session.timeout.ms."""
_PING_S = SESSION_MS / 3000
_PING, _CREATE, _CLOSE = 11, 1, -11
_EPHEMERAL = 1
_PING_XID = -2
_NODE_EXISTS = -110
_WORLD_ALL = struct.pack(">ii", 1, 31) + struct.pack(">i", 5) + b"world" + struct.pack(">i", 6) + b"anyone"
_CONNECT_TRIES = 100

Address = tuple[str, int]


class StormError(Exception):
    """A storm failed; the message says what ZooKeeper or the broker did."""


class Session:
    """One session. Used by one task, except for its pings."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._pinging: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Connects; retries while the server's connection queue is full. Raises StormError."""
        for _ in range(_CONNECT_TRIES):
            try:
                self._reader, self._writer = await asyncio.open_connection(*self._address)
                break
            except ConnectionRefusedError as error:
                raise StormError(f"no ZooKeeper at {self._address[0]}:{self._address[1]}: {error}") from error
            except OSError:
                await asyncio.sleep(random.uniform(0.05, 0.15))
        else:
            raise StormError(f"ZooKeeper at {self._address[0]}:{self._address[1]} takes no more connections")
        self._send(struct.pack(">iqiqi", 0, 0, SESSION_MS, 0, 16) + bytes(16) + b"\0")
        await self._receive()
        self._pinging = asyncio.create_task(self._ping())

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = True) -> None:
        """Creates a node. An existing node is accepted if it is to be persistent. Raises StormError."""
        flags = _EPHEMERAL if ephemeral else 0
        self._send(
            struct.pack(">ii", 1, _CREATE)
            + _text(path)
            + _bytes(data)
            + _WORLD_ALL
            + struct.pack(">i", flags)
        )
        while True:
            answer = await self._receive()
            xid, _, error = struct.unpack_from(">iqi", answer)
            if xid != _PING_XID:
                break
        if error and (ephemeral or error != _NODE_EXISTS):
            raise StormError(f"ZooKeeper answered {error} to the creation of {path}")

    async def end(self) -> None:
        """Closes the session, so that its node disappears at once."""
        if self._pinging:
            self._pinging.cancel()
        self._send(struct.pack(">ii", 2, _CLOSE))
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._writer.close()

    async def _ping(self) -> None:
        while not self._writer.is_closing():
            await asyncio.sleep(_PING_S)
            self._send(struct.pack(">ii", _PING_XID, _PING))

    def _send(self, body: bytes) -> None:
        self._writer.write(_bytes(body))

    async def _receive(self) -> bytes:
        try:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise StormError(
                f"ZooKeeper at {self._address[0]}:{self._address[1]} ended a session: {error}"
            ) from error


async def make_parents(address: Address, path: str) -> None:
    """Creates the persistent nodes down to ``path``. Raises StormError."""
    session = Session(address)
    await session.begin()
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        await session.create("/" + "/".join(parts[:depth]), ephemeral=False)
    await session.end()


async def register(
    addresses: Sequence[Address], path: str, data: Sequence[bytes], first: int
) -> list[Session]:
    """Opens a session for each of ``data`` in parallel, and creates its ephemeral node ``path/<number>``.

    Numbers start with ``first``. Returns when the last node exists. Raises StormError.
    """
    sessions = [Session(addresses[number % len(addresses)]) for number in range(len(data))]

    async def one(number: int) -> None:
        await sessions[number].begin()
        await sessions[number].create(f"{path}/{first + number}", data[number])

    await asyncio.gather(*(one(number) for number in range(len(data))))
    return sessions


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _text(text: str) -> bytes:
    return _bytes(text.encode())
