"""Batches to append: the topic's rules for them, the results of the checks, and small helpers."""

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
    """What a topic's config requires of an appended batch."""
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
    """Batches that passed :meth:`LogAppender.check` at ``now_ms`` (wall clock); ``records`` is writable."""

    records: memoryview
    headers: list[BatchHeader]
    origin: AppendOrigin
    log_append_time: bool
    now_ms: int


class FetchedBatches(NamedTuple):
    """What a leader sent, with its batches up to the first one that is incomplete or fails its checksum."""

    records: memoryview
    headers: list[BatchHeader]


def any_has_producer(headers: Sequence[BatchHeader]) -> bool:
    """Whether any of them is from an idempotent producer."""
    return any(header.producer_id >= 0 for header in headers)


def drop_older_half(recent: dict[int, int]) -> None:
    """Keeps the later half. Entries are dropped in bulk; a look-up that misses them costs little."""
    for offset in list(recent)[: len(recent) // 2]:
        del recent[offset]


def runs_that_fit(batches: Sequence[AppendedBatch], max_bytes: int) -> Iterator[Sequence[AppendedBatch]]:
    """``batches`` in runs that each fit a segment of ``max_bytes``."""
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
    """The result of an append of ``batches``, which have ``size`` bytes together."""
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
