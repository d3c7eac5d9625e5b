"""Members of one consumer group in one event loop: measures how long until all are in one generation again.

Members send heartbeats far more often than clients do (every 50 ms, not 3 s), so that the broker is measured
and not the wait for the next heartbeat.
"""

from __future__ import annotations

import enum
import selectors
import struct
import time
from collections.abc import Sequence

from bench.client.connection import Connection, ReadyConnection
from bench.client.requests import FieldReader, RawClientError, blob, request, string

FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 1
JOIN_GROUP, JOIN_GROUP_VERSION = 11, 4
HEARTBEAT, HEARTBEAT_VERSION = 12, 2
SYNC_GROUP, SYNC_GROUP_VERSION = 14, 2
SESSION_MS, REBALANCE_MS = 45_000, 60_000
HEARTBEAT_S = 0.05
COORDINATOR_TIMEOUT_S = 60.0
NONE, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 25, 27, 79
COORDINATOR_LOADING, COORDINATOR_UNAVAILABLE, NOT_COORDINATOR = 14, 15, 16
NOT_YET = {COORDINATOR_LOADING, COORDINATOR_UNAVAILABLE, NOT_COORDINATOR}


class Phase(enum.Enum):
    """The answer that a member waits for; STABLE and TURNED_AWAY: none."""

    TURNED_AWAY = "turned away"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    BEATING = "beating"


class Member:
    """One member: sends requests and reads their answers."""

    def __init__(self, port: int, group: str, metadata: bytes) -> None:
        self.connection = ReadyConnection(port, 1 << 20)
        self.phase = Phase.JOINING
        self.generation = -1
        self.synced_generation = -1
        self.next_beat = 0.0
        self._group = group
        self._metadata = metadata
        self._id = ""

    def join(self) -> None:
        """Sends JoinGroup, with the member id if it is known."""
        self.phase = Phase.JOINING
        protocols = struct.pack(">i", 1) + string("range") + blob(self._metadata)
        body = string(self._group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS)
        body += string(self._id) + string("consumer") + protocols
        self.connection.send(request(JOIN_GROUP, JOIN_GROUP_VERSION, body))

    def beat(self) -> None:
        """Sends a heartbeat."""
        self.phase = Phase.BEATING
        body = string(self._group) + struct.pack(">i", self.generation) + string(self._id)
        self.connection.send(request(HEARTBEAT, HEARTBEAT_VERSION, body))

    def answered(self, answer: bytes, now: float) -> None:
        """Continues according to the answer."""
        reader = FieldReader(answer, 8)
        error_code = reader.int16()
        if self.phase is Phase.JOINING:
            self._joined(reader, error_code)
            self.next_beat = now + HEARTBEAT_S
        elif error_code in {REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID}:
            self.join()
        elif error_code != NONE:
            raise RawClientError(f"{self.phase.value} was answered with error code {error_code}", error_code)
        else:
            if self.phase is Phase.SYNCING:
                self.synced_generation = self.generation
            self.phase = Phase.STABLE
            self.next_beat = now + HEARTBEAT_S

    def _joined(self, reader: FieldReader, error_code: int) -> None:
        if error_code == MEMBER_ID_REQUIRED:
            reader.int32()
            reader.string()
            reader.string()
            self._id = reader.string()
            return self.join()
        if error_code in NOT_YET:
            self.phase = Phase.TURNED_AWAY
            return None
        if error_code != NONE:
            raise RawClientError(f"JoinGroup was answered with error code {error_code}", error_code)
        self.generation = reader.int32()
        reader.string()
        leader, self._id = reader.string(), reader.string()
        members = [(reader.string(), reader.blob())[0] for _ in range(reader.int32())]
        return self._sync(members if leader == self._id else [])

    def _sync(self, members: Sequence[str]) -> None:
        self.phase = Phase.SYNCING
        body = string(self._group) + struct.pack(">i", self.generation) + string(self._id)
        body += struct.pack(">i", len(members))
        body += b"".join(string(member) + blob(b"\x00\x00" + bytes(8)) for member in members)
        self.connection.send(request(SYNC_GROUP, SYNC_GROUP_VERSION, body))


class Group:
    """A consumer group whose members join with ``metadata``; measures how long until all are stable in
    one generation.
    """

    def __init__(self, port: int, name: str, metadata: bytes = bytes(10)) -> None:
        self._port = port
        self._name = name
        self._metadata = metadata
        self._members: list[Member] = []
        self._selector = selectors.DefaultSelector()

    def add(self, count: int) -> None:
        """Adds ``count`` members, which ask to join."""
        for _ in range(count):
            member = Member(self._port, self._name, self._metadata)
            self._members.append(member)
            self._selector.register(member.connection, selectors.EVENT_READ, member)
            member.join()

    def settle(self, timeout_s: float = 60.0) -> float:
        """Continues until all members are in one generation; returns the seconds that this took."""
        start = time.perf_counter()
        while not self._is_settled():
            now = time.perf_counter()
            if now - start > timeout_s:
                raise RawClientError(f"the group of {len(self._members)} did not settle in {timeout_s:.0f} s")
            self._step(now)
        return time.perf_counter() - start

    def close(self) -> None:
        """Closes the connections; the members' sessions expire by themselves."""
        self._selector.close()
        for member in self._members:
            member.connection.close()

    def _step(self, now: float) -> None:
        for key, _ in self._selector.select(0.005):
            member: Member = key.data
            for answer in member.connection.answers():
                member.answered(bytes(answer), now)
        for member in self._members:
            if member.phase is Phase.STABLE and member.next_beat <= now:
                member.beat()
            elif member.phase is Phase.TURNED_AWAY and member.next_beat <= now:
                member.join()

    def _is_settled(self) -> bool:
        last = max(member.generation for member in self._members)
        return all(
            member.synced_generation == last and member.phase in {Phase.STABLE, Phase.BEATING}
            for member in self._members
        )


def await_coordinator(port: int, group: str) -> int:
    """Asks for the group's coordinator until there is one; returns its port. The first request creates the
    offsets topic.
    """
    body = string(group) + struct.pack(">b", 0)
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while time.monotonic() < deadline:
        connection = Connection(port)
        try:
            reader = FieldReader(
                bytes(connection.ask(request(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body))), 8
            )
        finally:
            connection.close()
        if reader.int16() == NONE:
            reader.string()
            reader.int32()
            reader.string()
            return reader.int32()
        time.sleep(0.2)
    raise RawClientError(f"no coordinator of {group} in {COORDINATOR_TIMEOUT_S:.0f} s")
