"""Sends requests to a whole broker in this process, and measures what they cost.

A request's CPU time is that of all threads of the process, because handlers serve the large ones, minus that
of the client's side here. The memory that it keeps is the number of blocks that are allocated after it and
were not before.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from statistics import median_low
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
    """The outcome of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Taken:
    """The cost of one request. ``cpu``: in passes of the reference's computing loop."""

    cpu: float
    out: int
    kept: int
    outcome: Outcome
    cpu_us: float = 0.0

    def least(self, other: Taken) -> Taken:
        """The lower value of each figure in two tries: noise only ever adds."""
        cheaper = min(self, other, key=lambda one: one.cpu)
        return replace(cheaper, out=min(self.out, other.out), kept=min(self.kept, other.kept))


class Asking:
    """One client of the broker, and the reference of this machine; used by one thread."""

    def __init__(self, stage: Stage, reference: Reference) -> None:
        self.stage = stage
        self._reference = reference
        self._socket = stage.open_socket()
        self._room = memoryview(bytearray(_ROOM))

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def least(self, asked: Asked, count: int, tries: int, good: Callable[[Taken], bool]) -> Taken:
        """The lowest cost of a request.

        It makes at most ``tries``, and stops when the cost is ``good``, or when the request is long: a second
        try would add little.
        """
        taken = self.take(asked.key, asked.version, request(asked, count))
        for _ in range(tries - 1):
            if good(taken) or taken.cpu_us > _LONG_US:
                break
            taken = taken.least(self.take(asked.key, asked.version, request(asked, count)))
        return taken

    def usual(self, asked: Asked, count: int, tries: int) -> Taken:
        """The least cost of a request as :meth:`least` finds it, but the CPU time is the middle one of all tries:
        a table of the luckiest ones would find usual ones dear.
        """
        return middle([self.take(asked.key, asked.version, request(asked, count)) for _ in range(tries)])

    def take(self, api_key: ApiKey, version: int, frame: bytes) -> Taken:
        """The cost of one request.

        In passes of the loop before it or after it, whichever took longer: cores get slower and quicker by
        half from one millisecond to the next, where neighbours share them.
        """
        gc.collect()
        pass_ns = self._pass_ns()
        before = sys.getallocatedblocks()
        spent_ns, out, head = self._exchange(frame)
        kept = _settled(before)
        outcome = Outcome.CLOSED if head is None else _outcome(api_key, version, head, out)
        return Taken(spent_ns / max(pass_ns, self._pass_ns()), out, kept, outcome, spent_ns / 1000)

    def _pass_ns(self) -> float:
        self._reference.time_once()  # warms the caches
        return min(self._reference.time_once().computing_ns for _ in range(_PASSES))

    def _exchange(self, frame: bytes) -> tuple[int, int, bytes | None]:
        """Nanoseconds, bytes of the answer, and its first bytes; None when the broker closed
        the connection.
        """
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
        """The number of bytes received; raises EOFError at the end."""
        try:
            count = self._socket.recv_into(self._room)
        except BlockingIOError:
            return 0
        if count == 0:
            raise EOFError
        return count


def middle(takes: Sequence[Taken]) -> Taken:
    """The lowest of each figure, but the CPU time of the middle try."""
    return replace(reduce(Taken.least, takes), cpu=median_low(taken.cpu for taken in takes))


def _settled(before: int) -> int:
    """The number of additional blocks. The thread that answered may still be about to free some."""
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
    """A client of a broker that has the topic, coordinates groups, and is idle."""
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
    """Sends each request once, so that loading modules and building tables is not measured."""
    for asked in what:
        client.take(asked.key, asked.version, request(asked, 1))
