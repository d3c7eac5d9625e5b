"""The coordinator's configuration, read once, because in Kafka 3.9 all of it is read-only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.consumer.messages import ConsumerGroupLimits
from broker.coordinator.group.consumer.policy import MigrationPolicy
from broker.coordinator.group.messages import GroupLimits

# By the names of Kafka's classes.
_ASSIGNORS: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The configs ``group.*`` and ``offsets.*``; Kafka's GroupConfig and OffsetConfig. Times are in
    milliseconds, sizes of metadata in characters. The GroupCoordinator reads them once.
    """

    limits: GroupLimits
    offsets_partitions: int = 50
    commit_timeout_ms: int = 5_000
    retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
    metadata_max_chars: int = 4_096
    consumers_enabled: bool = False

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            limits=GroupLimits(
                min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
                max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
                max_size=config.int("group.max.size"),
                initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
                max_member_bytes=config.int("landline.group.member.max.bytes"),
                max_groups=config.int("landline.group.max.count"),
                max_pending_members=config.int("landline.group.pending.max.count"),
                max_bytes=config.int("landline.group.max.bytes"),
                consumers=ConsumerGroupLimits(
                    session_timeout_ms=config.int("group.consumer.session.timeout.ms"),
                    heartbeat_interval_ms=config.int("group.consumer.heartbeat.interval.ms"),
                    max_size=config.int("group.consumer.max.size"),
                    max_member_bytes=config.int("landline.group.member.max.bytes") // 2,
                    assignors=_assignors(config.list("group.consumer.assignors")),
                    migration=MigrationPolicy(config.str("group.consumer.migration.policy").lower()),
                ),
            ),
            offsets_partitions=config.int("offsets.topic.num.partitions"),
            commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
            retention_ms=config.int("offsets.retention.minutes") * 60_000,
            retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
            metadata_max_chars=config.int("offset.metadata.max.bytes"),
            consumers_enabled="consumer" in config.list("group.coordinator.rebalance.protocols"),
        )


def _assignors(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_ASSIGNORS[name] for name in names))
