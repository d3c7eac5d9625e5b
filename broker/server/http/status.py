"""What the broker tells of itself: /status, and the metrics named after Kafka's (registerStats)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from broker.controller.controller import KafkaController
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics
from broker.network.socket_server import SocketServer
from broker.protocol.api_keys import ApiKey
from broker.replication.replica_manager import ReplicaManager
from broker.replication.traffic import Traffic
from broker.server.apis.table import Apis
from broker.server.http.disk_stats import disk_status
from broker.server.lifecycle.broker_state import StateKeeper
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.server.request_handler_pool import RequestHandlerPool
from broker.zookeeper.cluster_store import ClusterStore


def running_status(
    cluster_id: str,
    controller: KafkaController,
    broker_epoch: int,
    listeners: Sequence[str],
    steps: StartupSteps,
    store: ClusterStore,
    cache: MetadataCache,
    replicas: ReplicaManager,
    logs: LogManager,
) -> Mapping[str, Any]:
    """What /status says of a broker that runs, besides who it is."""
    return {
        "cluster_id": cluster_id,
        "controller_id": cache.controller_id,
        "is_controller": controller.is_active,
        "broker_epoch": broker_epoch,
        "listeners": listeners,
        "startup_ms": steps.total_ms,
        "startup_steps": [{"step": timing.step, "ms": timing.ms} for timing in steps.timings],
        "zookeeper_state": "CONNECTED" if store.session_id else "CONNECTING",
        "live_brokers": sorted(cache.alive_broker_ids()),
        **replica_counts(replicas),
        "offline_partitions": offline_partitions(cache),
        **disk_status(logs),
        "leading": partition_rows(replicas),
    }


# What /status says, besides who it is, while the broker is not running: the same fields, so that none is missing
# for who asks.
NOT_RUNNING: Final[Mapping[str, Any]] = {
    "cluster_id": None,
    "controller_id": -1,
    "is_controller": False,
    "broker_epoch": -1,
    "listeners": [],
    "startup_ms": None,
    "startup_steps": [],
    "zookeeper_state": "CONNECTING",
    "live_brokers": [],
    "partition_count": 0,
    "leader_count": 0,
    "under_replicated_partitions": 0,
    "under_min_isr_partitions": 0,
    "at_min_isr_partitions": 0,
    "reassigning_partitions": 0,
    "offline_partitions": 0,
    "offline_log_dirs": {},
    "refusing_log_dirs": {},
    "leading": [],
}


def replica_counts(replicas: ReplicaManager) -> dict[str, int]:
    """The counts operators watch, over the partitions of this broker."""
    partitions = replicas.partitions()
    return {
        "partition_count": len(partitions),
        "leader_count": sum(partition.is_leader for partition in partitions),
        "under_replicated_partitions": sum(partition.is_under_replicated for partition in partitions),
        "under_min_isr_partitions": sum(partition.is_under_min_isr for partition in partitions),
        "at_min_isr_partitions": sum(partition.is_at_min_isr for partition in partitions),
        "reassigning_partitions": sum(partition.is_being_reassigned for partition in partitions),
    }


def offline_partitions(cache: MetadataCache) -> int:
    """Partitions of the cluster without a live leader, as far as this broker was told."""
    snapshot = cache.snapshot
    return sum(
        info.leader not in snapshot.brokers for topic in snapshot.topics.values() for info in topic.values()
    )


def partition_rows(replicas: ReplicaManager) -> list[Mapping[str, Any]]:
    """The partitions led here, for who must judge whether a broker may be stopped."""
    return [
        {
            "topic": partition.topic_partition.topic,
            "partition": partition.topic_partition.partition,
            "replicas": list(partition.state.replicas),
            "isr": sorted(partition.isr.certain),
            "min_insync_replicas": partition.log.config.min_insync_replicas,
        }
        for partition in replicas.partitions()
        if partition.is_leader
    ]


def _count(replicas: ReplicaManager, key: str) -> Callable[[], float]:
    return lambda: float(replica_counts(replicas)[key])


def _attribute(traffic: Traffic, name: str) -> Callable[[], float]:
    return lambda: float(getattr(traffic, name))


def _per_log(
    replicas: ReplicaManager, measure: Callable[[Log], int]
) -> Callable[[], Mapping[tuple[str, ...], float]]:
    def rows() -> Mapping[tuple[str, ...], float]:
        return {
            (partition.topic_partition.topic, str(partition.topic_partition.partition)): float(
                measure(partition.log)
            )
            for partition in replicas.partitions()
        }

    return rows


def _item(read: Callable[[], tuple[float, float]], place: int) -> float:
    return read()[place]


def register_stats(
    metrics: Metrics,
    keeper: StateKeeper,
    replicas: ReplicaManager,
    cache: MetadataCache,
    sockets: SocketServer,
    pool: RequestHandlerPool,
    apis: Apis,
    fetching: Callable[[], int],
    throttled_rates: Callable[[], tuple[float, float]],
) -> None:
    """Registers what is read at each scrape; nothing here costs anything between scrapes."""
    gauge = metrics.gauge
    traffic = replicas.traffic
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "The broker's state, Kafka's number",
        lambda: float(keeper.state),
    )
    for name, help_text, key in (
        ("partitioncount", "Partitions with a replica here", "partition_count"),
        ("leadercount", "Partitions led here", "leader_count"),
        ("underreplicatedpartitions", "Led here, with replicas out of sync", "under_replicated_partitions"),
        ("underminisrpartitioncount", "Led here, below min.insync.replicas", "under_min_isr_partitions"),
        ("atminisrpartitioncount", "Led here, exactly at min.insync.replicas", "at_min_isr_partitions"),
        ("reassigningpartitions", "Led here, with replicas being moved", "reassigning_partitions"),
    ):
        gauge(
            f"kafka_server_replicamanager_{name}",
            help_text,
            _count(replicas, key),
        )
    for name, help_text, attribute in (
        ("kafka_server_brokertopicmetrics_messagesin_total", "Records appended by clients", "messages_in"),
        ("kafka_server_brokertopicmetrics_bytesin_total", "Bytes appended by clients", "bytes_in"),
        ("kafka_server_brokertopicmetrics_bytesout_total", "Bytes fetched by consumers", "bytes_out"),
        (
            "kafka_server_brokertopicmetrics_replicationbytesout_total",
            "Bytes fetched by followers",
            "replication_bytes_out",
        ),
        ("kafka_server_brokertopicmetrics_failedproducerequests_total", "Appends refused", "failed_produces"),
        ("kafka_server_brokertopicmetrics_failedfetchrequests_total", "Reads refused", "failed_fetches"),
        ("kafka_server_replicamanager_isrshrinks_total", "ISR members dropped", "isr_shrinks"),
        ("kafka_server_replicamanager_isrexpands_total", "ISR members taken back", "isr_expands"),
    ):
        gauge(name, help_text, _attribute(traffic, attribute))
    gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait",
        lambda: {
            (purgatory.name,): float(len(purgatory))
            for purgatory in (replicas.produce_purgatory, replicas.fetch_purgatory)
        },
        labels=("delayedoperation",),
    )
    gauge(
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "Share of time the processors wait, 0 to 1",
        sockets.avg_idle_percent,
    )
    gauge(
        "kafka_server_socketserver_connectioncount",
        "Open connections",
        lambda: float(sockets.connection_count),
    )
    gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "Share of time the handlers wait, 0 to 1",
        pool.avg_idle_percent,
    )
    measures: tuple[tuple[str, str, Callable[[Log], int]], ...] = (
        ("size", "Bytes of a partition's segments", lambda log: log.size_bytes),
        ("logendoffset", "Where a partition's log ends", lambda log: log.log_end_offset),
        ("logstartoffset", "Where a partition's log begins", lambda log: log.log_start_offset),
        ("numlogsegments", "A partition's segments", lambda log: log.num_segments),
    )
    for name, help_text, measure in measures:
        gauge(f"kafka_log_log_{name}", help_text, _per_log(replicas, measure), labels=("topic", "partition"))
    gauge(
        "kafka_server_replicafetchermanager_followedpartitions",
        "Partitions fetched from other brokers",
        lambda: float(fetching()),
    )
    for place, direction in enumerate(("leader", "follower")):
        gauge(
            f"kafka_server_{direction}replication_byterate",
            f"Bytes a second that throttled replicas take, as {direction}s",
            partial(_item, throttled_rates, place),
        )
    gauge(
        "kafka_server_metadatacache_livebrokers",
        "Live brokers known",
        lambda: float(len(cache.alive_broker_ids())),
    )
    gauge(
        "kafka_network_requestmetrics_requests_total",
        "Requests served",
        lambda: {(key.name,): float(stats.requests) for key, stats in apis.stats.items()},
        labels=("request",),
    )
    metrics.histograms(
        "kafka_network_requestmetrics_totaltimems",
        "From a request's receipt to its answer handed to the socket, in milliseconds",
        lambda: {(ApiKey(key).name,): times for key, times in sockets.total_times().items()},
        labels=("request",),
    )
    gauge(
        "kafka_network_requestmetrics_errors_total",
        "Requests that failed in the broker",
        lambda: {(key.name,): float(stats.errors) for key, stats in apis.stats.items()},
        labels=("request",),
    )
    gauge(
        "kafka_network_requestmetrics_localtimems_total",
        "Time spent in the handlers of an API, in milliseconds",
        lambda: {(key.name,): stats.local_ns / 1e6 for key, stats in apis.stats.items()},
        labels=("request",),
    )
