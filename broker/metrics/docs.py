"""Generates docs/metrics.md from the metrics that a running broker exports.

``python -m broker.metrics.docs http://127.0.0.1:8092/metrics > docs/metrics.md``; a test compares the file
with a running broker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_INTRODUCTION: Final = """\
# Metrics

Generated from a running broker by `.venv/bin/python -m broker.metrics.docs URL`.

`/metrics` on `landline.http.port` (8092) serves Prometheus text; no exporter or agent is needed. The page is
rendered at most once a second. Names are Kafka's JMX names in lower case:
`kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions` is
`kafka_server_replicamanager_underreplicatedpartitions`. A meter such as `MessagesInPerSec` is a counter whose
name ends in `_total`; use `rate()` on it. Times are in milliseconds, as in Kafka. The broker's state is a
number: 0 NotRunning, 1 Starting, 2 RecoveringFromUncleanShutdown, 3 RunningAsBroker, 4 RunningAsController,
6 PendingControlledShutdown, 7 BrokerShuttingDown.

The most important metrics, with their normal values:
`kafka_controller_kafkacontroller_activecontrollercount` (1, summed over all brokers),
`kafka_controller_kafkacontroller_offlinepartitionscount` (0) and
`kafka_server_replicamanager_underreplicatedpartitions` (0).
[Alerts, and what the lag of a group means](monitoring.md).
"""
# Name prefixes, and the MBean that each stands for.
_BEANS: Final[Mapping[str, str]] = {
    "kafka_server_kafkaserver_": "kafka.server:type=KafkaServer",
    "kafka_server_replicamanager_": "kafka.server:type=ReplicaManager",
    "kafka_server_brokertopicmetrics_": "kafka.server:type=BrokerTopicMetrics",
    "kafka_server_delayedoperationpurgatory_": "kafka.server:type=DelayedOperationPurgatory",
    "kafka_server_kafkarequesthandlerpool_": "kafka.server:type=KafkaRequestHandlerPool",
    "kafka_server_produce_": "kafka.server:type=Produce",
    "kafka_server_fetch_": "kafka.server:type=Fetch",
    "kafka_server_request_": "kafka.server:type=Request",
    "kafka_server_controllermutation_": "kafka.server:type=ControllerMutation",
    "kafka_server_socketservermetrics_": "kafka.server:type=socket-server-metrics",
    "kafka_server_groupcoordinatormetrics_": "kafka.server:type=group-coordinator-metrics",
    "kafka_server_transactioncoordinatormetrics_": "kafka.server:type=transaction-coordinator-metrics",
    "kafka_network_requestmetrics_": "kafka.network:type=RequestMetrics",
    "kafka_network_socketserver_": "kafka.network:type=SocketServer",
    "kafka_controller_kafkacontroller_": "kafka.controller:type=KafkaController",
    "kafka_controller_controllerstats_": "kafka.controller:type=ControllerStats",
    "kafka_controller_controllereventmanager_": "kafka.controller:type=ControllerEventManager",
    "kafka_coordinator_group_groupmetadatamanager_": "kafka.coordinator.group:type=GroupMetadataManager",
    "kafka_coordinator_transaction_transactionmarkerchannelmanager_": (
        "kafka.coordinator.transaction:type=TransactionMarkerChannelManager"
    ),
    "kafka_log_logcleanermanager_": "kafka.log:type=LogCleanerManager",
    "kafka_log_logcleaner": "kafka.log:type=LogCleaner",
    "kafka_log_logmanager_": "kafka.log:type=LogManager",
    "kafka_log_log": "kafka.log:type=Log",
    "kafka_cluster_partition_": "kafka.cluster:type=Partition",
    "kafka_consumergroup_": "consumer groups, by kafka_exporter's names",
    "process_": "the process",
}
_OTHERS: Final = "Landline's own"


class Family(NamedTuple):
    """One metric: its name, type and help text, as in the page's comment lines."""

    name: str
    kind: str
    help: str


def families(page: str) -> list[Family]:
    """The metrics of a page of Prometheus text, by name."""
    helps: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for line in page.splitlines():
        mark, word, *rest = [*line.split(" ", 3), "", ""][:4]
        if mark == "#" and word == "HELP":
            helps[rest[0]] = rest[1]
        elif mark == "#" and word == "TYPE":
            kinds[rest[0]] = rest[1]
    return [Family(name, kind, helps.get(name, "")) for name, kind in sorted(kinds.items())]


def metrics_page(page: str) -> str:
    """The complete text of docs/metrics.md for a broker's metrics page."""
    return "\n".join(_lines(families(page))) + "\n"


def _lines(found: list[Family]) -> Iterator[str]:
    yield _INTRODUCTION
    groups: dict[str, list[Family]] = {}
    for family in found:
        groups.setdefault(_bean(family.name), []).append(family)
    order = [*dict.fromkeys(_BEANS.values()), _OTHERS]
    for bean in sorted(groups, key=order.index):
        yield f"## {bean}\n"
        yield "| Metric | Kind | Description |"
        yield "|---|---|---|"
        for family in groups[bean]:
            yield f"| `{family.name}` | {family.kind} | {family.help} |"
        yield ""


def _bean(name: str) -> str:
    return next((bean for start, bean in _BEANS.items() if name.startswith(start)), _OTHERS)


def _main(url: str) -> None:
    from urllib.request import urlopen

    with urlopen(url, timeout=10) as response:  # noqa: S310 - the operator's own URL
        sys.stdout.write(metrics_page(response.read().decode()))


if __name__ == "__main__":
    _main(sys.argv[1])
