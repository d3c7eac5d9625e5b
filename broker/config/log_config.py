"""A topic's settings as the log uses them: the broker's defaults with the topic's own overrides on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A topic's settings; Kafka's LogConfig, with Kafka 3.9's topic-level configs. ``*_ms`` are milliseconds,
    ``*_bytes`` bytes. -1 for retention means no limit.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    max_message_bytes: int = 1048588
    index_interval_bytes: int = 4096
    file_delete_delay_ms: int = 60000
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_downconversion_enable: bool = True
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = LONG_MAX
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy
