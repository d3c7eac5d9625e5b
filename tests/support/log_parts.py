"""The real parts of a log in a temporary directory, without a Log around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker.config.log_config import LogConfig
from broker.log.durability import Durability
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_producers import LogProducers
from broker.log.log_segments import Segments
from broker.log.producers.producer_state import ProducerStateManager
from broker.log.segments.segment import Segment
from broker.record.batch import iter_batches
from tests.support.clocks import ManualClock
from tests.support.logs import TP

NOW_MS = 1_000_000


class NotedTasks:
    """A KafkaScheduler that runs nothing. ``asked`` lists the scheduled tasks as ``(name, delay_ms)``."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.is_started = True

    def schedule(
        self,
        name: str,
        action: Callable[[], None],
        delay_ms: int = 0,
        period_ms: int = -1,
        *,
        bulk: bool = False,
    ) -> None:
        self.asked.append((name, delay_ms))


class LogParts:
    """The parts of an empty log that begins at ``base_offset``. Creates ``directory``."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig | None = None,
        *,
        base_offset: int = 0,
        scheduler: NotedTasks | None = None,
    ) -> None:
        directory.mkdir()
        self.config = config or LogConfig()
        self.clock = ManualClock(NOW_MS)
        self.context = LogContext(TP, directory, self.clock, scheduler)
        self.offsets = LogOffsets(base_offset, base_offset)
        first = Segment.create(directory, base_offset, self.config.segment_index_bytes, NOW_MS)
        self.segments = Segments(self.context, [first], base_offset, self.config)
        self.epochs = LeaderEpochCache(directory, has_file=False)
        self.durability = Durability(self.context, self.offsets, self.segments, self.epochs, base_offset)
        self.producers = LogProducers(
            ProducerStateManager(86_400_000), self.context, self.offsets, self.segments
        )

    def put(self, batches: bytes | memoryview, *, roll: bool = False) -> None:
        """Writes ``batches`` unchanged; with ``roll``, to a new segment."""
        view = memoryview(batches)
        headers = list(iter_batches(view))
        placed = [(h.base_offset, h.last_offset, h.size_bytes, h.max_timestamp) for h in headers]
        if roll:
            self.segments.roll(self.offsets.end)
        self.offsets.end = self.segments.append(view, placed, self.offsets.end, self.clock.wall_ms())
        self.producers.note(view, headers, placed)

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        return [segment.base_offset for segment in self.segments.all]

    def files(self, suffix: str) -> list[int]:
        """The offsets in the names of the files with this suffix, rising."""
        return sorted(int(path.name[:20]) for path in self.context.directory.glob(f"*{suffix}"))
