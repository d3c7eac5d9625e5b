"""Creates the broker's parts from its configuration: maps config keys to constructor arguments.
Starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import structlog

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.config.log_config import LogConfig
from broker.config.sasl import BrokerLogin
from broker.log.free_space import FreeSpaceFloor
from broker.log.log_manager import LogManager, LogManagerSettings
from broker.metrics.registry import Metrics
from broker.network.connection_quotas import NO_RATE, ConnectionLimits, ConnectionQuotas, ListenerLimits
from broker.network.ip_rates import IpConnectionRates
from broker.network.socket_server import SocketServer
from broker.network.transport import Security
from broker.quotas.rate import Windows
from broker.replication.broker_channel import BrokerChannel, ChannelSecurity
from broker.replication.cluster_view import BrokerAddress
from broker.replication.fetcher_parts import FetcherSettings
from broker.replication.replica_manager import ReplicaManager
from broker.sasl.client import ClientLogin
from broker.server.broker_peers import BrokerPeers, Speaker, Trust
from broker.server.delegation_tokens import DelegationTokens
from broker.server.fetch_sessions import LOOK_AT_ALL_MS, FetchSessionCache
from broker.server.quotas import QuotaManagers, addresses_of
from broker.server.zookeeper_access import access_of
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.connect_string import server_addresses
from broker.zookeeper.servers import Servers
from broker.zookeeper.store import Store
from broker.zookeeper.token_store import TokenStore

ChannelMaker = Callable[[BrokerAddress, str], BrokerChannel]
_CONNECT_TIMEOUT_MS: Final = 10_000
_LAG_TIMEOUT_MS: Final = 2_000
_log = structlog.get_logger(__name__)


def make_store(config: BrokerConfig) -> Store:
    """The ZooKeeper store; kazoo is not imported earlier."""
    from broker.zookeeper.client import ZooKeeperStore

    return ZooKeeperStore(
        config.str("zookeeper.connect"), config.int("zookeeper.session.timeout.ms"), access_of(config)
    )


def make_zookeeper_servers(config: BrokerConfig, clock: Clock, *, is_zookeeper: bool) -> Servers:
    """The servers of the ensemble; none for a broker with another store."""
    if not is_zookeeper:
        return Servers((), None, clock)
    return Servers(server_addresses(config.str("zookeeper.connect")), access_of(config).secure, clock)


def make_socket_server(config: BrokerConfig, security: Security | None = None) -> SocketServer:
    limits = connection_limits(config)
    quotas = ConnectionQuotas(
        limits.max_connections,
        limits.max_per_ip,
        limits.overrides,
        limits.creation_rate,
        protected_listeners=config.listeners_of_brokers,
        ip_rates=IpConnectionRates(_client_windows(config)),
    )
    quotas.limits = limits
    return SocketServer(
        config.listeners,
        num_processors=config.int("num.network.threads"),
        max_frame_bytes=config.int("socket.request.max.bytes"),
        idle_ms=config.int("connections.max.idle.ms"),
        send_buffer=config.int("socket.send.buffer.bytes"),
        receive_buffer=config.int("socket.receive.buffer.bytes"),
        backlog=config.int("socket.listen.backlog.size"),
        quotas=quotas,
        max_request_memory=config.int("queued.max.request.bytes"),
        deleted_file_ms=config.int("landline.deleted.segment.read.max.ms"),
        security=security,
    )


def make_quotas(config: BrokerConfig, ip_rates: IpConnectionRates) -> QuotaManagers:
    """The client quotas, as yet without any."""
    return QuotaManagers(
        _client_windows(config),
        Windows(
            config.int("controller.quota.window.num"),
            config.int("controller.quota.window.size.seconds") * 1_000,
        ),
        Windows(config.int("metrics.num.samples"), config.int("metrics.sample.window.ms")),
        ip_rates=ip_rates,
    )


def _client_windows(config: BrokerConfig) -> Windows:
    return Windows(config.int("quota.window.num"), config.int("quota.window.size.seconds") * 1_000)


def advertised_endpoints(config: BrokerConfig, ports: Mapping[str, int]) -> list[Endpoint]:
    """The advertised listeners; one without a port gets the port that its listener was bound to."""
    return [
        replace(endpoint, port=ports[endpoint.listener_name]) if endpoint.port == 0 else endpoint
        for endpoint in config.advertised_listeners
    ]


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """The current limits. All of them are dynamic configs."""
    return ConnectionLimits(
        config.int("max.connections"),
        config.int("max.connections.per.ip"),
        _overrides(config.str("max.connections.per.ip.overrides")),
        config.int("max.connection.creation.rate"),
        {each.listener_name: _listener_limits(config, each.listener_name) for each in config.listeners},
    )


def _listener_limits(config: BrokerConfig, listener: str) -> ListenerLimits:
    """The limits that only this listener has."""
    own = config.for_listener(listener)
    most, rate = (
        own.int(key) if own.name_of(key) != key else NO_RATE
        for key in ("max.connections", "max.connection.creation.rate")
    )
    return ListenerLimits(most, rate)


@lru_cache(maxsize=1)  # other configs change more often, and a name server may take long
def _overrides(text: str) -> Mapping[str, int]:
    """Parses ``host:count,host:count``: the counts by address, as connections have them."""
    counts: dict[str, int] = {}
    for item in filter(str.strip, text.split(",")):
        host, _, count = item.rpartition(":")
        try:
            counts |= dict.fromkeys(addresses_of(host.strip()), int(count))
        except OSError as error:
            _log.warning(
                "connection_override_of_unknown_host",
                host=host.strip(),
                error=str(error),
                action="ignored: give its address, or set max.connections.per.ip.overrides again",
            )
    return counts


def log_manager_settings(config: BrokerConfig) -> LogManagerSettings:
    """The log layer's settings. Some are dynamic configs."""
    return LogManagerSettings(
        num_recovery_threads_per_data_dir=config.int("num.recovery.threads.per.data.dir"),
        producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        landline_producer_id_max_count=config.int("landline.producer.id.max.count"),
        landline_producer_id_broker_max_count=config.int("landline.producer.id.broker.max.count"),
        log_flush_scheduler_interval_ms=config.int("log.flush.scheduler.interval.ms"),
        log_flush_offset_checkpoint_interval_ms=config.int("log.flush.offset.checkpoint.interval.ms"),
        log_flush_start_offset_checkpoint_interval_ms=config.int(
            "log.flush.start.offset.checkpoint.interval.ms"
        ),
        log_retention_check_interval_ms=config.int("log.retention.check.interval.ms"),
        log_initial_task_delay_ms=config.int("log.initial.task.delay.ms"),
        log_cleaner_enable=config.bool("log.cleaner.enable"),
        log_cleaner_backoff_ms=config.int("log.cleaner.backoff.ms"),
        log_cleaner_dedupe_buffer_size=config.int("log.cleaner.dedupe.buffer.size"),
        log_cleaner_io_max_bytes_per_second=config.float("log.cleaner.io.max.bytes.per.second"),
        free_space_floor=FreeSpaceFloor(
            config.int("landline.log.dir.min.free.bytes"), config.int("landline.log.dir.min.free.percent")
        ),
    )


def make_log_manager(
    config: BrokerConfig, topic_config: Callable[[str], LogConfig], scheduler: KafkaScheduler, clock: Clock
) -> LogManager:
    return LogManager(
        config.log_dirs,
        config.log_config(),
        topic_config,
        scheduler,
        clock,
        settings=log_manager_settings(config),
    )


def make_fetch_sessions(
    config: Callable[[], BrokerConfig], clock: Clock, metrics: Metrics, replicas: ReplicaManager
) -> FetchSessionCache:
    """The cache of fetch sessions. ``config`` is called each time, because the number of sessions is a
    dynamic config.
    """
    return FetchSessionCache(
        lambda: config().int("max.incremental.fetch.session.cache.slots"),
        clock,
        metrics,
        replicas.news_board,
        look_at_all_ms=max(1, min(LOOK_AT_ALL_MS, config().int("replica.lag.time.max.ms") // 10)),
    )


def make_broker_peers(config: BrokerConfig, store: ClusterStore) -> BrokerPeers:
    """The check of who may send brokers' requests: any host that a registered broker has in one of
    its listeners.
    """
    return BrokerPeers(
        Trust(config.str("landline.inter.broker.peers")),
        config.inter_broker_listener_name,
        lambda: [
            Speaker(
                frozenset(endpoint.host for endpoint in broker.registration.endpoints),
                broker.registration.speaks_by,
            )
            for broker in store.brokers().values()
        ],
        controller_listener=config.controller_listener_name,
    )


def make_delegation_tokens(
    config: BrokerConfig, store: ClusterStore, clock: Clock
) -> DelegationTokens | None:
    """The delegation tokens; None without a secret to sign them with."""
    secret = config.opt_str("delegation.token.secret.key") or config.opt_str("delegation.token.master.key")
    if not secret:
        return None
    return DelegationTokens(
        TokenStore(store.store),
        secret,
        clock,
        renew_ms=config.int("delegation.token.expiry.time.ms"),
        max_ms=config.int("delegation.token.max.lifetime.ms"),
    )


def make_channel_maker(config: BrokerConfig, security: ChannelSecurity | None = None) -> ChannelMaker:
    """Creates channels to other brokers' inter-broker listeners."""
    timeout_ms = config.int("controller.socket.timeout.ms")
    return _channel_maker(_login(config), _CONNECT_TIMEOUT_MS, timeout_ms, security=security)


def make_controller_channel_maker(
    config: BrokerConfig, security: ChannelSecurity | None = None
) -> ChannelMaker:
    """Creates a controller's channels to brokers, by the listener for its requests."""
    timeout_ms = config.int("controller.socket.timeout.ms")
    login = make_client_login(config.sasl.of_controller)
    return _channel_maker(login, _CONNECT_TIMEOUT_MS, timeout_ms, security=security)


def make_fetch_channel_maker(config: BrokerConfig, security: ChannelSecurity | None = None) -> ChannelMaker:
    """Creates channels for followers' fetches, with ``replica.socket.*``."""
    timeout_ms = config.int("replica.socket.timeout.ms")
    receive_buffer_bytes = config.int("replica.socket.receive.buffer.bytes")
    return _channel_maker(
        _login(config),
        min(timeout_ms, _CONNECT_TIMEOUT_MS),
        timeout_ms,
        receive_buffer_bytes,
        security=security,
    )


def make_lag_channel_maker(config: BrokerConfig, security: ChannelSecurity | None = None) -> ChannelMaker:
    """Creates channels to ask leaders for end offsets: one that does not answer soon is asked again later."""
    return _channel_maker(_login(config), _LAG_TIMEOUT_MS, _LAG_TIMEOUT_MS, security=security)


def _login(config: BrokerConfig) -> ClientLogin | None:
    return make_client_login(config.sasl.between_brokers)


def make_client_login(login: BrokerLogin | None) -> ClientLogin | None:
    """How this broker logs in to others; None if their listener has no SASL."""
    if login is None:
        return None
    tokens = None
    if login.kerberos is not None:
        from broker.server.kerberos import KerberosClient

        tokens = KerberosClient(login.kerberos).tokens
    return ClientLogin(login.mechanism, login.user, login.password, tokens)


def _channel_maker(
    login: ClientLogin | None,
    connect_timeout_ms: int,
    request_timeout_ms: int,
    receive_buffer_bytes: int = -1,
    *,
    security: ChannelSecurity | None,
) -> ChannelMaker:
    def make(address: BrokerAddress, client_id: str) -> BrokerChannel:
        return BrokerChannel(
            address.host,
            address.port,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            receive_buffer_bytes=receive_buffer_bytes,
            security=security,
            login=login,
        )

    return make


def make_fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        wait_max_ms=config.int("replica.fetch.wait.max.ms"),
        min_bytes=config.int("replica.fetch.min.bytes"),
        max_bytes=config.int("replica.fetch.max.bytes"),
        response_max_bytes=config.int("replica.fetch.response.max.bytes"),
        backoff_ms=config.int("replica.fetch.backoff.ms"),
    )
