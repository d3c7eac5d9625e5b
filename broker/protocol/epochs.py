"""The values that mean no leader, no controller or no epoch: constants of Kafka's protocol."""

from __future__ import annotations

from typing import Final

NO_LEADER: Final = -1
"""As a partition's leader: there is no leader."""
LEADER_DURING_DELETE: Final = -2
"""As the leader in UpdateMetadata: the partition's topic is being deleted."""
NO_CONTROLLER: Final = -1
"""As the controller's broker id: there is no controller, or none is known."""
NO_EPOCH: Final = -1
"""As an epoch of any kind (leader, partition, controller, broker): unknown, not requested, or missing in
this version.
"""
EPOCH_DURING_DELETE: Final = -2
"""As the leader epoch in StopReplica: the topic is being deleted, whatever epoch the broker has."""
