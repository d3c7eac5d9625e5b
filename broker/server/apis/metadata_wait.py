"""Delays a response until this broker's metadata shows the change, without blocking a thread.

For CreateTopics, DeleteTopics and CreatePartitions (Kafka's DelayedCreatePartitions and DelayedDeleteTopics).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from broker.server.apis.context import ApiContext
from broker.utils.timer import TimerEntry
from broker.utils.topic_partition import TopicPartition

POLL_MS = 20


class MetadataWait:
    """A wait for a metadata change that calls ``finish`` exactly once: when ``is_done`` is true or
    after ``timeout_ms``.

    ``is_done`` is checked after each metadata update, and every 20 ms for changes visible elsewhere. Both
    functions must be quick.
    """

    def __init__(
        self, ctx: ApiContext, timeout_ms: int, is_done: Callable[[], bool], finish: Callable[[], None]
    ) -> None:
        self._ctx = ctx
        self._is_done = is_done
        self._finish = finish
        self._deadline_ms = ctx.clock.monotonic_ms() + timeout_ms
        self._lock = threading.Lock()  # lock order 66
        self._finished = False
        self._timer: TimerEntry | None = None

    def start(self) -> None:
        self._ctx.metadata_cache.add_listener(self._check)
        self._poll()

    def _poll(self) -> None:
        if self._ctx.clock.monotonic_ms() >= self._deadline_ms:
            self._end()
            return
        self._check()
        if not self._finished:
            left_ms = self._deadline_ms - self._ctx.clock.monotonic_ms()
            self._timer = self._ctx.timer.add(max(min(POLL_MS, left_ms), 1), self._poll)

    def _check(self) -> None:
        if not self._finished and self._is_done():
            self._end()

    def _end(self) -> None:
        with self._lock:
            if self._finished:
                return
            self._finished = True
        self._ctx.metadata_cache.remove_listener(self._check)
        timer, self._timer = self._timer, None  # breaks a reference cycle with the timer entry
        if timer is not None:
            timer.cancel()
        self._finish()


def await_led(
    ctx: ApiContext, partition_counts: Mapping[str, int], timeout_ms: int, finish: Callable[[set[str]], None]
) -> None:
    """Calls ``finish`` when this broker knows a leader of every partition, or at the time-out. Its argument:
    the topics with partitions whose leader is not known.
    """

    def late() -> set[str]:
        return {topic for topic, count in partition_counts.items() if not _is_led(ctx, topic, count)}

    MetadataWait(ctx, timeout_ms, lambda: not late(), lambda: finish(late())).start()


def _is_led(ctx: ApiContext, topic: str, count: int) -> bool:
    infos = (ctx.metadata_cache.partition_info(TopicPartition(topic, index)) for index in range(count))
    return all(info is not None and info.leader >= 0 for info in infos)
