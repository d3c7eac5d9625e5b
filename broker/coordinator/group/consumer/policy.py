"""Which groups may change their protocol while they have members: ``group.consumer.migration.policy``."""

from __future__ import annotations

from enum import Enum


class MigrationPolicy(Enum):
    """Kafka's ConsumerGroupMigrationPolicy."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group when the first member of that protocol joins."""
        return self in {MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL}

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes a classic group when its last member of that protocol has gone."""
        return self in {MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL}
