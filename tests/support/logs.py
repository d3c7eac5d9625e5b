"""Logs in temporary directories, and batches for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.cleaning.io_pace import IoPace
from broker.log.loading.loader import LoadParameters, load_log
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.log.producers.producer_state import MAX_PRODUCERS
from broker.protocol.control_messages import PartitionRole
from broker.record.batch import Record, build_batch, iter_batches, read_records
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock

TP = TopicPartition("t", 0)


class Alone:
    """A cluster of one broker."""

    def alive(self, _broker_id: int) -> bool:
        return True


def open_log(
    directory: Path,
    config: LogConfig | None = None,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clock: ManualClock | None = None,
    producer_expiration_ms: int = 86_400_000,
    max_producers: int = MAX_PRODUCERS,
    scheduler: KafkaScheduler | None = None,
) -> Log:
    """The log in ``directory``/t-0."""
    directory.mkdir(parents=True, exist_ok=True)
    parameters = LoadParameters(
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        producer_expiration_ms=producer_expiration_ms,
        clock=clock or ManualClock(),
        max_producers=max_producers,
        scheduler=scheduler,
    )
    return load_log(directory / "t-0", TP, config or LogConfig(), parameters)


def batch(*values, timestamp=1000, key=None, **options) -> memoryview:
    """A writable batch with one record per value, as a client sends it."""
    records = [Record(key, value, (), timestamp) for value in values]
    return memoryview(bytearray(build_batch(records, **options)))


def contents(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """``(offset, value)`` of all records, read batch by batch."""
    offset = log.log_start_offset if start is None else start
    found = []
    while len(view := log.read_bytes(offset, 1 << 20)):
        found += [(r.offset, r.value) for r in read_records(view) if r.offset >= offset]
        offset = list(iter_batches(view))[-1].next_offset
    return found


def fetched(offset: int, size: int = 900) -> memoryview:
    """A batch as a leader sends it."""
    record = Record(None, b"v" * size, timestamp=1000)
    return memoryview(bytearray(build_batch([record], base_offset=offset, leader_epoch=0)))


def partition_of(log: Log, *, leads: bool = False) -> Partition:
    """A partition of broker 1: with only that replica if it leads, else as a follower of broker 2."""
    partition = Partition(
        TP, log, broker_id=1, max_lag_ms=1000, clock=SYSTEM_CLOCK, alive=lambda _broker_id: True
    )
    leader, isr = (1, (1,)) if leads else (2, (1, 2))
    state = PartitionRole(TP, None, 1, leader, 0, isr, 0, isr)
    partition.make_leader(state) if leads else partition.make_follower(state)
    return partition


def managed(
    directory: Path, config: LogConfig | None = None, scheduler: KafkaScheduler | None = None
) -> LogManager:
    """A started manager, over one directory."""
    manager = LogManager([str(directory)], config or LogConfig(), scheduler=scheduler)
    manager.startup()
    return manager


def unlimited(stopped: Callable[[], bool] = lambda: False) -> IoPace:
    """The pace of a cleaner that is not limited."""
    return IoPace(math.inf, SYSTEM_CLOCK, stopped)
