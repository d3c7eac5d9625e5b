"""Delays a response until this broker's metadata shows the change, without blocking a thread.

For CreateTopics, DeleteTopics and CreatePartitions (Kafka's DelayedCreatePartitions and DelayedDeleteTopics).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from broker.network.request_channel import Request
from broker.server.apis.context import ApiContext
from broker.utils.timer import TimerEntry
from broker.utils.topic_partition import TopicPartition

POLL_MS: Final = 20
_LONGEST_POLL_MS: Final = 1_000
_POLLS: Final = 16  # while a wait's time doubles


class MetadataWait:
    """A wait for a metadata change that calls ``finish`` exactly once: when ``is_done`` is true or
    after ``timeout_ms``.

    ``is_done`` is checked after each metadata update, and every 20 ms for changes visible elsewhere: after a while
    less often, because a client may wait for days. Both functions must be quick. When the client of ``request``
    hangs up, the wait ends without ``finish``.
    """

    def __init__(
        self,
        ctx: ApiContext,
        request: Request,
        timeout_ms: int,
        is_done: Callable[[], bool],
        finish: Callable[[], None],
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._is_done = is_done
        self._finish = finish
        self._began_ms = ctx.clock.monotonic_ms()
        self._deadline_ms = self._began_ms + timeout_ms
        self._lock = threading.Lock()  # lock order 66
        self._finished = False
        self._timer: TimerEntry | None = None

    def start(self) -> None:
        self._ctx.metadata_cache.add_listener(self._check)
        self._request.on_abandon = self.abandon
        if self._request.connection.gone:  # before that could be told
            self.abandon()
        if self._finished:
            self._request.on_abandon = None  # breaks a reference cycle with the request
        else:
            self._poll()

    def abandon(self) -> None:
        """Ends the wait without an answer: nobody would read it. From any thread, also when it has ended."""
        self._ends_now()

    def _poll(self) -> None:
        if self._ctx.clock.monotonic_ms() >= self._deadline_ms:
            self._end()
            return
        self._check()
        if not self._finished:
            now_ms = self._ctx.clock.monotonic_ms()
            pause_ms = min(max(POLL_MS, (now_ms - self._began_ms) // _POLLS), _LONGEST_POLL_MS)
            self._timer = self._ctx.timer.add(max(min(pause_ms, self._deadline_ms - now_ms), 1), self._poll)

    def _check(self) -> None:
        if not self._finished and self._is_done():
            self._end()

    def _end(self) -> None:
        if self._ends_now():
            self._finish()

    def _ends_now(self) -> bool:
        """Ends the wait; False if it has ended before."""
        with self._lock:
            if self._finished:
                return False
            self._finished = True
        self._ctx.metadata_cache.remove_listener(self._check)
        timer, self._timer = self._timer, None  # breaks a reference cycle with the timer entry
        if timer is not None:
            timer.cancel()
        return True


def await_led(
    ctx: ApiContext,
    request: Request,
    partition_counts: Mapping[str, int],
    timeout_ms: int,
    finish: Callable[[set[str]], None],
) -> None:
    """Calls ``finish`` when this broker knows a leader of every partition, or at the time-out. Its argument:
    the topics with partitions whose leader is not known.
    """

    def late() -> set[str]:
        return {topic for topic, count in partition_counts.items() if not _is_led(ctx, topic, count)}

    MetadataWait(ctx, request, timeout_ms, lambda: not late(), lambda: finish(late())).start()


def _is_led(ctx: ApiContext, topic: str, count: int) -> bool:
    infos = (ctx.metadata_cache.partition_info(TopicPartition(topic, index)) for index in range(count))
    return all(info is not None and info.leader >= 0 for info in infos)
