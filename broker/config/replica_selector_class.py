"""The names that ``replica.selector.class`` may have."""

from __future__ import annotations

from typing import Final

from broker.config.types import Value

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaSelectorClass:
    """The validator of ``replica.selector.class``."""

    __slots__ = ()

    def complaint(self, value: Value) -> str | None:
        return None if value in (None, "", RACK_AWARE) else f"{RACK_AWARE} is expected: no other is there"

    def describe(self) -> str:
        return RACK_AWARE
