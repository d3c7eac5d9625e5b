"""Gauges of the group coordinator, named after Kafka's GroupMetadataManager (``kafka.coordinator.group``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinator.common.load_times import LoadTimes, register_load_times
from broker.coordinator.group.kinds import state_of
from broker.coordinator.group.memory import GroupMemory
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.states import GroupState
from broker.metrics.registry import Metrics
from broker.utils.topic_partition import GROUP_METADATA_TOPIC

_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager_"


def register_metrics(
    metrics: Metrics, registry: GroupRegistry, memory: GroupMemory, load_times: LoadTimes
) -> None:
    """Registers the gauges. Their values are computed at each scrape."""

    def offsets() -> float:
        return sum(len(cell.group.offsets) for cell in registry.cells())

    def groups() -> float:
        return len(registry.cells())

    metrics.gauge(_PREFIX + "numgroups", "Groups coordinated here", groups)
    metrics.gauge(_PREFIX + "numoffsets", "Committed offsets stored here", offsets)
    metrics.gauge(
        "landline_group_bytes",
        "Memory used by groups, their members and their offsets, in bytes",
        lambda: memory.held,
    )
    register_load_times(metrics, "kafka_server_groupcoordinatormetrics_", GROUP_METADATA_TOPIC, load_times)
    for state in GroupState:
        name = _PREFIX + "numgroups" + state.value.lower()
        metrics.gauge(name, f"Groups in state {state.value}", _count_of(registry, state))


def _count_of(registry: GroupRegistry, state: GroupState) -> Callable[[], float]:
    return lambda: sum(state_of(cell.group).value == state.value for cell in registry.cells())
