"""What replication needs to know of the rest of the cluster; the MetadataCache above knows it."""

from __future__ import annotations

import uuid
from typing import NamedTuple, Protocol


class BrokerAddress(NamedTuple):
    """Where a broker's inter-broker listener is."""

    broker_id: int
    host: str
    port: int


class ClusterView(Protocol):
    """Answers from the last UpdateMetadata. Called on any thread; must not block."""

    def alive(self, broker_id: int) -> bool:
        """Whether the controller counts the broker among the living."""
        ...

    def broker_address(self, broker_id: int) -> BrokerAddress | None: ...

    def controller_address(self) -> BrokerAddress | None: ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...
