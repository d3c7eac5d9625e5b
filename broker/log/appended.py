"""Batches that are appended: what a topic asks of them, what was checked, and small questions about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from broker.config.log_config import LogConfig
from broker.log.results import AppendInfo
from broker.log.segments.segment import AppendedBatch
from broker.record import validator
from broker.record.header import BatchHeader
from broker.record.validator import AppendOrigin, BatchRules


@lru_cache(maxsize=256)  # one for all logs of a topic
def rules_of(config: LogConfig) -> BatchRules:
    """What a topic's config asks of an appended batch."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return BatchRules(
        max_message_bytes=config.max_message_bytes,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.compact,
        target_codec=validator.codec_for(config.compression_type),
        level=levels.get(config.compression_type),
    )


class CheckedBatches(NamedTuple):
    """Batches that the log takes, as :meth:`LogAppender.check` found them at ``now_ms`` (wall clock); writable."""

    records: memoryview
    headers: list[BatchHeader]
    origin: AppendOrigin
    log_append_time: bool
    now_ms: int


class FetchedBatches(NamedTuple):
    """What a leader sent, and its batches up to the first that is incomplete or fails its checksum."""

    records: memoryview
    headers: list[BatchHeader]


def any_has_producer(headers: Sequence[BatchHeader]) -> bool:
    """Whether one of them is of an idempotent producer."""
    return any(header.producer_id >= 0 for header in headers)


def drop_older_half(recent: dict[int, int]) -> None:
    """Leaves the later half: in one go, for a look-up that finds nothing there costs little."""
    for offset in list(recent)[: len(recent) // 2]:
        del recent[offset]


def runs_that_fit(batches: Sequence[AppendedBatch], max_bytes: int) -> Iterator[Sequence[AppendedBatch]]:
    """``batches`` in runs that fit a segment of ``max_bytes`` each."""
    start = size = 0
    for number, batch in enumerate(batches):
        if size and size + batch[2] > max_bytes:
            yield batches[start:number]
            start, size = number, 0
        size += batch[2]
    yield batches[start:]


def info_of(
    headers: Sequence[BatchHeader],
    batches: Sequence[AppendedBatch],
    leader_epoch: int,
    *,
    append_time: int,
    log_start_offset: int,
    size: int,
) -> AppendInfo:
    """What an append of ``batches`` tells, ``size`` bytes together."""
    if len(headers) == 1:
        count, max_timestamp = headers[0].record_count, headers[0].max_timestamp
    else:
        count = sum(header.record_count for header in headers)
        max_timestamp = max(header.max_timestamp for header in headers)
    return AppendInfo(
        batches[0][0],
        batches[-1][1],
        max_timestamp,
        append_time,
        log_start_offset,
        False,
        size,
        count,
        leader_epoch,
    )
