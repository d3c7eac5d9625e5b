"""Assembles replication: ReplicaManager, fetchers, ISR changes and Leadership, with their periodic tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.config.broker_config import BrokerConfig
from broker.log import metrics as log_metrics
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics
from broker.protocol.alter_partition_messages import IsrChange
from broker.protocol.errors import Errors
from broker.replication import metrics as replication_metrics
from broker.replication.alter_partition_manager import AlterPartitionManager
from broker.replication.broker_channel import ChannelSecurity
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.fetcher_parts import FetcherParts, Invite
from broker.replication.gone_brokers import GoneBrokers
from broker.replication.leadership import Leadership, LeadershipListener
from broker.replication.log_dir_mover import LogDirMover
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_selector import ReplicaSelector
from broker.replication.replication_quota import ReplicationQuota
from broker.server import assembly
from broker.server.metadata_cache import MetadataCache
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.zookeeper.cluster_store import ClusterStore

_PURGE_MS = 60_000


class ReplicationService:
    """Owns the replication threads, which run from the first LeaderAndIsr until :meth:`shutdown`."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        *,
        broker_epoch: Callable[[], int],
        log_manager: LogManager,
        cache: MetadataCache,
        timer: Timer,
        clock: Clock,
        listener: LeadershipListener,
        store: ClusterStore,
        invite: Invite,
        security: ChannelSecurity | None = None,
    ) -> None:
        self._invite = invite
        self._config = config
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._cache = cache
        self._clock = clock
        self._fetch_channel = assembly.make_fetch_channel_maker(config, security)
        self._fetcher_settings = assembly.make_fetcher_settings(config)
        self._leader_quota, self._follower_quota = (
            ReplicationQuota(
                clock,
                config.int("replication.quota.window.num"),
                config.int("replication.quota.window.size.seconds") * 1000,
            )
            for _ in range(2)
        )
        self._alter_partition = AlterPartitionManager(
            broker_id,
            cache,
            broker_epoch,
            assembly.make_channel_maker(config, security),
            on_accepted=self._on_isr_accepted,
            on_refused=self._on_isr_refused,
        )
        cache.add_listener(self._alter_partition.look_at_controller)
        selects = bool(config.opt_str("replica.selector.class"))
        self.replica_manager = ReplicaManager(
            broker_id,
            log_manager,
            cache,
            timer,
            clock,
            max_lag_ms=config.int("replica.lag.time.max.ms"),
            submit_isr_change=self._alter_partition.submit,
            leader_quota=self._leader_quota,
            selector=ReplicaSelector(broker_id, cache, clock) if selects else None,
        )
        self.gone_brokers = GoneBrokers(clock, cache.alive)
        self.fetchers = ReplicaFetcherManager(config.int("num.replica.fetchers"), self._make_fetcher)
        self.mover = LogDirMover(
            log_manager,
            self.replica_manager.partition,
            self.replica_manager.wake_all,
            ReplicationQuota(
                clock,
                config.int("alter.log.dirs.replication.quota.window.num"),
                config.int("alter.log.dirs.replication.quota.window.size.seconds") * 1000,
            ),
            config.opt_int("num.replica.alter.log.dirs.threads") or len(config.log_dirs),
        )
        self.update_config(config)
        self.leadership = Leadership(
            self.replica_manager,
            log_manager,
            self.fetchers,
            listener,
            store.present_topic_id,
            mover=self.mover,
        )

    def update_config(self, config: BrokerConfig) -> None:
        """Applies the dynamic configs: the throttles' rates, and the number of fetchers."""
        self._leader_quota.limit = config.int("leader.replication.throttled.rate")
        self._follower_quota.limit = config.int("follower.replication.throttled.rate")
        self.mover.quota.limit = config.int("replica.alter.log.dirs.io.max.bytes.per.second")
        self.fetchers.resize(config.int("num.replica.fetchers"))

    def register_metrics(self, metrics: Metrics) -> None:
        """Registers the metrics of replication, and of the logs that belong to partitions."""
        replicas = self.replica_manager
        log_metrics.register_metrics(
            metrics, replicas.log_manager, lambda: [partition.log for partition in replicas.partitions()]
        )
        replication_metrics.register_metrics(
            metrics,
            replicas,
            self.fetchers,
            self._follower_quota,
            self._clock,
            max_transaction_timeout_ms=self._config.int("transaction.max.timeout.ms"),
        )

    def startup(self, scheduler: KafkaScheduler) -> None:
        """Starts the periodic tasks: ISR expiration and the high watermark checkpoint."""
        replicas = self.replica_manager
        half_lag_ms = max(self._config.int("replica.lag.time.max.ms") // 2, 1)
        checkpoint_ms = self._config.int("replica.high.watermark.checkpoint.interval.ms")
        scheduler.schedule("isr-expiration", replicas.shrink_isrs, half_lag_ms, half_lag_ms)
        scheduler.schedule(
            "highwatermark-checkpoint", replicas.checkpoint_high_watermarks, checkpoint_ms, checkpoint_ms
        )
        for purgatory in replicas.purgatories:
            scheduler.schedule(f"purgatory-{purgatory.name}", purgatory.drop_empty, _PURGE_MS, _PURGE_MS)

    def shutdown(self) -> None:
        """Stops fetching and ISR changes, then writes the high watermarks. Must be called before the logs
        are closed.
        """
        self._alter_partition.shutdown()
        self.mover.shutdown()
        self.fetchers.shutdown()
        self.replica_manager.shutdown()
        self.replica_manager.checkpoint_high_watermarks()

    def _make_fetcher(self, leader: int, number: int) -> ReplicaFetcher:
        return ReplicaFetcher(
            FetcherParts(
                name=f"replica-fetcher-{number}-{leader}",
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                address=partial(self._cache.broker_address, leader),
                make_channel=self._fetch_channel,
                settings=self._fetcher_settings,
                clock=self._clock,
                on_appended=self.replica_manager.wake,
                on_reached=partial(self.gone_brokers.forget, leader),
                on_refused=partial(self.gone_brokers.note, leader),
                invite=self._invite,
                quota=self._follower_quota,
            )
        )

    def _on_isr_accepted(
        self, change: IsrChange, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        self.replica_manager.on_isr_accepted(change, isr, leader_epoch, partition_epoch)

    def _on_isr_refused(self, change: IsrChange, error: Errors) -> bool:
        return self.replica_manager.on_isr_refused(change, error)
