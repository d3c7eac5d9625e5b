"""What replication needs to know about the rest of the cluster; implemented by the MetadataCache."""

from __future__ import annotations

import uuid
from typing import NamedTuple, Protocol


class BrokerAddress(NamedTuple):
    """The address of a broker's inter-broker listener."""

    broker_id: int
    host: str
    port: int


class ClusterView(Protocol):
    """The cluster according to the last UpdateMetadata. Called on any thread; must not block."""

    def alive(self, broker_id: int) -> bool:
        """Whether the controller considers the broker alive."""
        ...

    def rack_of(self, broker_id: int, listener: str) -> str | None:
        """The rack of a live broker that has the listener; None if it has no rack, too."""
        ...

    def broker_address(self, broker_id: int) -> BrokerAddress | None: ...

    def controller_address(self) -> BrokerAddress | None: ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...
