"""Asks requests of a whole broker in this process, and counts what they take.

A request's CPU time is that of all threads of the process, for the large ones are served by handlers, without what the
client's side takes here. What it keeps is the blocks of memory that are in use after it and were not before.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from bench.cost.asked import TOPIC, Asked, request
from bench.guard.measure import settled_heap
from bench.guard.reference import Reference
from bench.guard.stage import Stage, StageError, data_parent, staged_broker
from bench.guard.workloads.groups import await_coordinator
from bench.guard.workloads.workload import create_topic
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.framing import response_body_offset
from broker.protocol.primitives import INT32

_TIMEOUT_S: Final = 600.0
_ROOM: Final = 1 << 20
_HEAD: Final = 64
_PASSES: Final = 6
_LONG_US: Final = 200_000
_LOOKS: Final = 40
_NO_BLOCKS: Final = 64
_REST_S: Final = 0.003


class Outcome(Enum):
    """What became of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Taken:
    """By one request. ``cpu``: passes of the reference's computing loop."""

    cpu: float
    out: int
    kept: int
    outcome: Outcome
    cpu_us: float = 0.0

    def least(self, other: Taken) -> Taken:
        """Of two tries the less of each: noise only ever adds."""
        cheaper = min(self, other, key=lambda one: one.cpu)
        return replace(cheaper, out=min(self.out, other.out), kept=min(self.kept, other.kept))


class Asking:
    """One client of the broker, and the yardstick of this machine; one thread's."""

    def __init__(self, stage: Stage, reference: Reference) -> None:
        self.stage = stage
        self._reference = reference
        self._socket = stage.open_socket()
        self._room = memoryview(bytearray(_ROOM))

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def least(self, asked: Asked, count: int, tries: int, good: Callable[[Taken], bool]) -> Taken:
        """The least that a request takes, of ``tries`` and no more tries than make it ``good``; of a long one a second
        would say little more.
        """
        taken = self.take(asked.key, asked.version, request(asked, count))
        for _ in range(tries - 1):
            if good(taken) or taken.cpu_us > _LONG_US:
                break
            taken = taken.least(self.take(asked.key, asked.version, request(asked, count)))
        return taken

    def take(self, api_key: ApiKey, version: int, frame: bytes) -> Taken:
        """What one request takes."""
        gc.collect()
        before = sys.getallocatedblocks()
        spent_ns, out, head = self._exchange(frame)
        kept = _settled(before)
        outcome = Outcome.CLOSED if head is None else _outcome(api_key, version, head, out)
        return Taken(spent_ns / self._pass_ns(), out, kept, outcome, spent_ns / 1000)

    def _pass_ns(self) -> float:
        self._reference.time_once()  # warms the caches
        return min(self._reference.time_once().computing_ns for _ in range(_PASSES))

    def _exchange(self, frame: bytes) -> tuple[int, int, bytes | None]:
        """Nanoseconds, bytes of the answer and its first ones; None when the broker closed the connection."""
        left, head, received, size = memoryview(frame), bytearray(), 0, -1
        deadline = time.monotonic() + _TIMEOUT_S
        began, own_ns = time.process_time_ns(), 0
        while True:
            before = time.thread_time_ns()
            try:
                left = self._send(left)
                while count := self._receive():
                    head += self._room[: max(0, min(count, _HEAD - len(head)))]
                    received += count
            except (BrokenPipeError, ConnectionResetError, EOFError):
                self._socket.close()
                self._socket = self.stage.open_socket()
                own_ns += time.thread_time_ns() - before
                return time.process_time_ns() - began - own_ns, 0, None
            if received >= INT32.size and size < 0:
                size = INT32.size + INT32.unpack_from(head)[0]
            own_ns += time.thread_time_ns() - before
            if received == size:
                return time.process_time_ns() - began - own_ns, size, bytes(head[INT32.size :])
            if time.monotonic() > deadline:
                raise StageError(f"no answer within {_TIMEOUT_S:.0f} s")
            self.stage.turn()

    def _send(self, left: memoryview) -> memoryview:
        try:
            return left[self._socket.send(left) :] if left else left
        except BlockingIOError:
            return left

    def _receive(self) -> int:
        """How many bytes came; raises EOFError when none will."""
        try:
            count = self._socket.recv_into(self._room)
        except BlockingIOError:
            return 0
        if count == 0:
            raise EOFError
        return count


def _settled(before: int) -> int:
    """The blocks that are there since; who answered may still be about to let go of what it answered from."""
    for _ in range(_LOOKS):
        gc.collect()
        kept = sys.getallocatedblocks() - before
        if kept < _NO_BLOCKS:
            break
        time.sleep(_REST_S)
    return kept


def _outcome(api_key: ApiKey, version: int, head: bytes, size: int) -> Outcome:
    refusal = codec.encode_error(api_key, version, Errors.INVALID_REQUEST)
    answer = head[response_body_offset(api_key, version, memoryview(head)) : size - INT32.size]
    return Outcome.REFUSED if refusal is not None and answer == refusal[:_HEAD] else Outcome.ANSWERED


@contextmanager
def asking() -> Iterator[Asking]:
    """Of a broker that has the topic and coordinates groups, and has settled."""
    with staged_broker() as stage, Reference(data_parent()) as reference:
        create_topic(stage, TOPIC, 1)
        await_coordinator(stage, TOPIC)
        client = Asking(stage, reference)
        try:
            with settled_heap():
                yield client
        finally:
            client.close()


def loaded(client: Asking, what: Sequence[Asked]) -> None:
    """Asks each once, so that no module is loaded and no table is made in what is counted."""
    for asked in what:
        client.take(asked.key, asked.version, request(asked, 1))
