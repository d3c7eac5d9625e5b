"""The controller's metrics, under Kafka's names. Metrics that only the active controller has are 0 on
other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.controller.context import ControllerContext
from broker.metrics.registry import Metrics

_PREFIX = "kafka_controller_kafkacontroller_"


class _Term(Protocol):
    @property
    def context(self) -> ControllerContext: ...


class ControllerMetrics:
    """The controller's metrics. Gauges read the current term when they are scraped; elections are counted as
    they happen.
    """

    def __init__(
        self, metrics: Metrics, term: Callable[[], _Term | None], queue_size: Callable[[], int]
    ) -> None:
        def gauge(name: str, help_: str, read: Callable[[ControllerContext], int]) -> None:
            def value() -> float:
                present = term()
                return 0 if present is None else read(present.context)

            metrics.gauge(_PREFIX + name, help_, value)

        gauge("activecontrollercount", "1 on the active controller, else 0", lambda _: 1)
        gauge(
            "offlinepartitionscount",
            "Partitions without a leader",
            ControllerContext.offline_partitions_count,
        )
        gauge(
            "preferredreplicaimbalancecount",
            "Partitions not led by their preferred replica",
            ControllerContext.preferred_replica_imbalance_count,
        )
        gauge("globaltopiccount", "Topics in the cluster", lambda context: len(context.topics))
        gauge("globalpartitioncount", "Partitions in the cluster", ControllerContext.partitions_count)
        gauge("topicstodeletecount", "Topics being deleted", lambda context: len(context.topics_to_delete))
        gauge("activebrokercount", "Registered brokers", lambda context: len(context.brokers))
        metrics.gauge(
            "kafka_controller_controllereventmanager_eventqueuesize",
            "Events in the controller's queue",
            lambda: float(queue_size()),
        )
        self._elections = metrics.counter(
            "kafka_controller_controllerstats_leaderelections_total", "Leader elections"
        )
        self._unclean = metrics.counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Elections of a leader outside the ISR",
        )

    def on_elected(self, clean: bool) -> None:
        self._elections.inc()
        if not clean:
            self._unclean.inc()
