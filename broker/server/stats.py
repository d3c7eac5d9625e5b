"""Kafka's registerStats, the last step of the start: each package registers its metrics."""

from __future__ import annotations

from broker.config.broker_config import BrokerConfig
from broker.metrics.registry import Metrics
from broker.network import metrics as network_metrics
from broker.network.socket_server import SocketServer
from broker.server import assembly
from broker.server import metrics as server_metrics
from broker.server.apis.table import Apis
from broker.server.lifecycle.broker_state import StateKeeper
from broker.server.metadata_cache import MetadataCache
from broker.server.replication_service import ReplicationService
from broker.server.request_handler_pool import RequestHandlerPool
from broker.server.security_parts import SecurityParts
from broker.utils.clock import Clock
from broker.zookeeper import metrics as zookeeper_metrics
from broker.zookeeper.cluster_store import ClusterStore


def register_stats(
    metrics: Metrics,
    apis: Apis,
    *,
    config: BrokerConfig,
    clock: Clock,
    store: ClusterStore,
    is_zookeeper: bool,
    keeper: StateKeeper,
    cache: MetadataCache,
    sockets: SocketServer,
    security: SecurityParts,
    replication: ReplicationService,
    pool: RequestHandlerPool,
) -> None:
    """``is_zookeeper``: not the embedded store of standalone mode. ``pool`` handles the clients' requests."""
    network_metrics.register_metrics(metrics, sockets)
    security.register_metrics(metrics)
    replication.register_metrics(metrics)
    zookeeper_metrics.register_metrics(metrics, store.store, config.int("zookeeper.session.timeout.ms"))
    servers = assembly.make_zookeeper_servers(config, clock, is_zookeeper=is_zookeeper)
    zookeeper_metrics.register_servers(metrics, servers)
    server_metrics.register_metrics(metrics, keeper, cache, pool, apis)
