"""In calm moments, collects reference cycles (:mod:`.collector`) and returns the C heap's free pages to the
system with glibc's ``malloc_trim``.

glibc keeps freed memory: one used block near the end of a heap pins all free blocks before it. After a flood
(buffers of partial requests, groups, producer ids) the process would stay at its largest size.
``malloc_trim(0)`` returns every free page, wherever it lies. It takes 0.1 ms per MiB and holds the lock of
one heap meanwhile, so it runs rarely and only in calm moments. Other C libraries have no such call; then
nothing is trimmed.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog

from broker.utils.collector import CollectPolicy
from broker.utils.scheduler import KafkaScheduler

MIB: Final = 1024 * 1024
# Less than this is not worth a trim: about half of what an idle broker uses.
WORTH_BYTES: Final = 16 * MIB
LOOK_MS: Final = 5_000
LEAST_BETWEEN_S: Final = 30.0
# Share of one CPU since the last check, below which the broker is calm.
CALM_SHARE: Final = 0.5
# A broker that is never calm is trimmed after this time at the latest.
LONGEST_WAIT_S: Final = 300.0

_log = structlog.get_logger(__name__)


class Sizes(NamedTuple):
    """Bytes: the process's resident memory, and the free bytes in its heaps, returned to the
    system or not.
    """

    resident: int
    free: int


class HeapSample(NamedTuple):
    """One sample: ``now_s`` on a monotonic clock, ``cpu_s`` of the whole process since its start."""

    now_s: float
    cpu_s: float
    sizes: Sizes


@dataclass(slots=True)
class TrimPolicy:
    """Decides when a trim is worthwhile. No IO; used by one thread.

    Free bytes may already have been returned to the system, so their number alone means nothing. A trim is
    worthwhile when that number or the process grew since the last one. ``resident_low`` is the process's size
    at its start: a flood may be over before the first sample.
    """

    resident_low: int
    _free_low: int = 0
    _last_s: float | None = None
    _last_look: HeapSample | None = None
    _wanted_since_s: float | None = None

    def is_due(self, moment: HeapSample) -> bool:
        """Whether to trim now. Must be called with every sample."""
        before, self._last_look = self._last_look, moment
        if before is None:
            self._free_low = moment.sizes.free
        if not self._is_worth_it(moment.sizes):
            self._wanted_since_s = None
            return False
        if self._last_s is not None and moment.now_s - self._last_s < LEAST_BETWEEN_S:
            return False
        if self._wanted_since_s is None:
            self._wanted_since_s = moment.now_s
        return _is_calm(before, moment) or moment.now_s - self._wanted_since_s >= LONGEST_WAIT_S

    def trimmed(self, now_s: float, after: Sizes) -> None:
        """Records a trim and the sizes after it."""
        self._last_s, self._wanted_since_s = now_s, None
        self.resident_low, self._free_low = after

    def _is_worth_it(self, sizes: Sizes) -> bool:
        self.resident_low = min(self.resident_low, sizes.resident)
        self._free_low = min(self._free_low, sizes.free)
        if sizes.free - self._free_low >= WORTH_BYTES:
            return True
        return sizes.free >= WORTH_BYTES and sizes.resident - self.resident_low >= WORTH_BYTES


def _is_calm(before: HeapSample | None, moment: HeapSample) -> bool:
    if before is None or moment.now_s <= before.now_s:
        return False
    return (moment.cpu_s - before.cpu_s) / (moment.now_s - before.now_s) < CALM_SHARE


def resident_bytes() -> int:
    """The process's resident memory in bytes; 0 if unknown. Takes about 10 µs."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class NativeHeap(Protocol):
    """The operations of a C library that HeapKeeper needs."""

    def free_bytes(self) -> int:
        """Bytes that are free in its heaps, returned to the system or not."""

    def trim(self) -> None:
        """Returns free pages to the system."""


class HeapKeeper:
    """Checks the heap every few seconds, on a scheduler's thread."""

    def __init__(self) -> None:
        self._policy = TrimPolicy(resident_bytes())
        self._collect_policy = CollectPolicy(resident_bytes())
        self._last_look = (time.monotonic(), time.process_time())
        self._heap: NativeHeap | None = None
        self._is_absent = False

    def startup(self, scheduler: KafkaScheduler) -> None:
        """Starts the checks; they run until the scheduler ends."""
        scheduler.schedule("heap", self.look, LOOK_MS, LOOK_MS)

    def look(self) -> None:
        """Collects cycles and trims the heap if that is worthwhile, calm and possible; otherwise
        does nothing.
        """
        self._collect()
        self._trim()

    def _collect(self) -> None:
        before_s, cpu_before_s = self._last_look
        now_s, cpu_s = self._last_look = time.monotonic(), time.process_time()
        share = (cpu_s - cpu_before_s) / max(now_s - before_s, 1e-3)
        looks = gc.get_count()[2]
        if not self._collect_policy.is_due(now_s, looks, resident_bytes(), share):
            return
        found = gc.collect()
        after_s = time.monotonic()
        self._collect_policy.collected(after_s, after_s - now_s, resident_bytes())
        _log.debug("cycles_collected", found=found, looks=looks, took_us=round((after_s - now_s) * 1e6))

    def _trim(self) -> None:
        heap = self._opened()
        if heap is None:
            return
        before = Sizes(resident_bytes(), heap.free_bytes())
        if not self._policy.is_due(HeapSample(time.monotonic(), time.process_time(), before)):
            return
        began_ns = time.perf_counter_ns()
        heap.trim()
        took_us = (time.perf_counter_ns() - began_ns) // 1000
        after = Sizes(resident_bytes(), heap.free_bytes())
        self._policy.trimmed(time.monotonic(), after)
        _log.info(
            "heap_given_back", before_bytes=before.resident, after_bytes=after.resident, took_us=took_us
        )

    def _opened(self) -> NativeHeap | None:
        if self._heap is None and not self._is_absent:
            # ctypes is not loaded during start-up: that takes 3 to 30 ms.
            from broker.utils.glibc import GlibcHeap

            try:
                self._heap = GlibcHeap()
            except OSError:
                self._is_absent = True
        return self._heap
