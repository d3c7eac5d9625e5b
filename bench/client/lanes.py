"""Many connections in one event loop, each with a window of requests in flight or at its own pace.

The time of each answer is recorded, from its request's ``send`` until it was read completely. A paced lane
sends on schedule whether or not the last answer has arrived, and its times count from the schedule. So a
stall affects the times of all requests that it delayed.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.client.connection import ReadyConnection
from bench.client.requests import (
    RawClientError,
    check_produced,
    fetch_request,
    produced_error_at,
    read_fetched,
)

IDLE_TIMEOUT_S = 60.0
US_PER_S = 1e6


class Lane:
    """One connection that repeats one request. ``interval_s`` is its pace; None: as fast as
    ``in_flight`` allows.
    """

    def __init__(
        self, port: int, request: bytes, in_flight: int, interval_s: float | None = None, room: int = 4096
    ) -> None:
        self.connection = ReadyConnection(port, room)
        self.in_flight = in_flight
        self.interval_s = interval_s
        self.sent_at: deque[float] = deque()
        self.request = request

    def answered(self, answer: memoryview) -> None:
        """Raises for an answer with an error."""
        raise NotImplementedError


class ProduceLane(Lane):
    """A lane that writes one batch repeatedly."""

    def __init__(self, port: int, topic: str, request: bytes, in_flight: int = 1) -> None:
        super().__init__(port, request, in_flight)
        self._error_at = produced_error_at(topic)

    def answered(self, answer: memoryview) -> None:
        check_produced(answer, self._error_at)


class FetchLane(Lane):
    """A lane that reads the same few batches repeatedly."""

    def __init__(self, port: int, topic: str, partition: int, max_bytes: int, interval_s: float) -> None:
        request = fetch_request(topic, partition, 0, max_bytes)
        super().__init__(port, request, in_flight=64, interval_s=interval_s, room=4 * max_bytes + 65536)
        self._topic = topic

    def answered(self, answer: memoryview) -> None:
        if read_fetched(answer, self._topic).size == 0:
            raise RawClientError("Fetch was answered with no records, the log holds more")


@dataclass(slots=True)
class LanesRun:
    """The result of a run over lanes. ``times_us`` has one list of times per lane."""

    answered: int = 0
    seconds: float = 0.0
    times_us: list[list[float]] = field(default_factory=list)

    @property
    def all_times_us(self) -> list[float]:
        """The times of all lanes."""
        return [each for times in self.times_us for each in times]


@contextmanager
def closing(lanes: Sequence[Lane]) -> Iterator[None]:
    """Closes the lanes' connections at the end."""
    try:
        yield
    finally:
        for lane in lanes:
            lane.connection.close()


def run_lanes(
    lanes: Sequence[Lane],
    seconds: float,
    *,
    count: int | None = None,
    until: Callable[[], bool] = lambda: False,
) -> LanesRun:
    """Runs all lanes for ``seconds``, or until ``count`` answers arrived, or until ``until`` returns True."""
    return _Loop(lanes, seconds, count, until).run()


class _Loop:
    """One run. ``_open`` lanes still send."""

    def __init__(
        self, lanes: Sequence[Lane], seconds: float, count: int | None, until: Callable[[], bool]
    ) -> None:
        self._lanes = lanes
        self._seconds, self._count, self._until = seconds, count, until
        self._by_fd = {lane.connection.fileno(): number for number, lane in enumerate(lanes)}
        self._run = LanesRun(times_us=[[] for _ in lanes])
        self._sent = 0
        self._outstanding = 0
        self._due: dict[Lane, float] = {}

    def run(self) -> LanesRun:
        poll = select.epoll()
        for fd in self._by_fd:
            poll.register(fd, select.EPOLLIN)
        start = time.perf_counter()
        self._begin(start)
        while self._outstanding or not self._over(start):
            ready = self._ready(poll)
            if not ready and not self._due:
                raise RawClientError(f"no answer for {IDLE_TIMEOUT_S:.0f} s")
            for fd, _ in ready:
                self._receive(self._by_fd[fd], start)
            if not self._over(start):
                self._send_what_is_due()
            else:
                self._due.clear()
        self._run.seconds = time.perf_counter() - start
        poll.close()
        return self._run

    def _over(self, start: float) -> bool:
        if self._count is not None and self._sent >= self._count:
            return True
        return self._until() or time.perf_counter() - start >= self._seconds

    def _begin(self, now: float) -> None:
        for number, lane in enumerate(self._lanes):
            if lane.interval_s is not None:
                self._due[lane] = now + lane.interval_s * number / len(self._lanes)
                continue
            for _ in range(lane.in_flight):
                self._send(lane, time.perf_counter())

    def _send(self, lane: Lane, at: float) -> None:
        if self._count is not None and self._sent >= self._count:
            return
        lane.sent_at.append(at)
        lane.connection.send(lane.request)
        self._sent += 1
        self._outstanding += 1

    def _receive(self, number: int, start: float) -> None:
        lane = self._lanes[number]
        times = self._run.times_us[number]
        came = 0
        for answer in lane.connection.answers():
            times.append((time.perf_counter() - lane.sent_at.popleft()) * US_PER_S)
            lane.answered(answer)
            came += 1
        self._outstanding -= came
        self._run.answered += came
        if lane.interval_s is None and not self._over(start):
            for _ in range(came):
                self._send(lane, time.perf_counter())

    def _send_what_is_due(self) -> None:
        now = time.perf_counter()
        for lane, due in self._due.items():
            if due <= now and len(lane.sent_at) < lane.in_flight:
                assert lane.interval_s is not None
                self._send(lane, due)
                self._due[lane] = due + lane.interval_s

    def _ready(self, poll: select.epoll) -> list[tuple[int, int]]:
        """Waits for answers, or for the next time to send.

        The wait is exact to the microsecond, while ``epoll`` rounds up to the next millisecond.
        """
        if not self._due:
            return poll.poll(IDLE_TIMEOUT_S)
        select.select([poll], [], [], max(0.0, min(self._due.values()) - time.perf_counter()))
        return poll.poll(0)
