"""BrokerServer: starts the broker's parts in Kafka 0.9's order, with two changes, and stops them in
reverse order.

The order: metrics, state Starting, scheduler, **bind listeners** and the HTTP endpoint, ZooKeeper,
LogManager, broker id, ReplicaManager, Controller, GroupCoordinator, Apis and RequestHandlerPool,
DynamicConfigManager, SocketServer, state RunningAsBroker, **Healthcheck**, registerStats, READY. Kafka
accepts connections or registers before it knows that its ports are free. Here the ports are bound first and
the broker registers last. As in Kafka, no request is served before the quotas and the dynamic configs are
known. Every step is named, timed and undone in reverse order, and a stop is possible
between any two steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from broker import __version__
from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.config.log_config import LogConfig
from broker.config.problems import ConfigError
from broker.controller.controller import KafkaController
from broker.controller.topic_admin import TopicAdmin
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.loading.load_progress import LoadProgress
from broker.metrics.registry import Metrics
from broker.network.acceptor import BindError
from broker.record.inspection import Depth
from broker.replication.log_dir_failures import LogDirFailureHandler
from broker.server import assembly, last_log_dir
from broker.server.apis.context import ApiContext
from broker.server.apis.table import Apis
from broker.server.auto_topics import AutoTopicCreation
from broker.server.broker_peers import follow_brokers
from broker.server.config_file import ConfigFile
from broker.server.consumer_lag import start_consumer_lag
from broker.server.coordinators import Coordinators, leadership_listener
from broker.server.dynamic_config import DynamicConfigManager
from broker.server.end_offsets import EndOffsets
from broker.server.handlers import start_handlers
from broker.server.http.http_endpoint import start_http
from broker.server.lifecycle.broker_state import BrokerState, StateKeeper
from broker.server.lifecycle.recording import LifecycleRecording
from broker.server.lifecycle.startup_steps import StartupCancelled, StartupError, StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.server.producer_ids import ProducerIdManager
from broker.server.registration.deposition import await_deposition_after_crash
from broker.server.registration.identity import settle_identity
from broker.server.registration.membership import Membership, await_first_metadata
from broker.server.registration.session_file import SessionFile
from broker.server.replication_service import ReplicationService
from broker.server.reports import Parts, Reports
from broker.server.security_parts import SecurityParts, start_tokens
from broker.server.stats import register_stats
from broker.server.stopping.handover import hand_over_leadership
from broker.server.zookeeper_access import access_of
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.compiled import compiled_by
from broker.utils.heap import HeapKeeper
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import Cancelled, Store, StoreError

__all__ = ["BrokerServer", "StartupCancelled", "StartupError"]
_log = structlog.get_logger(__name__)
_STUCK_LOOP_MS = 20_000


class BrokerServer:
    """One broker; Kafka's KafkaServer. Startup and shutdown are called once each; other methods from
    any thread.

    ``store`` is the embedded store of standalone mode; without it, ZooKeeper is used. ``notify`` receives
    status lines, for example for systemd. ``config_file`` is the file that :meth:`reload` reads. Startup
    raises :class:`StartupCancelled` or :class:`StartupError` after undoing all its steps.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        notify: Callable[[str], None] = lambda _text: None,
        config_file: ConfigFile | None = None,
    ) -> None:
        self.config = config
        self._config_file = config_file
        self.keeper = StateKeeper()
        self._reports = Reports(self.keeper, clock, lambda: self.broker_id, config_file)
        self.metrics = Metrics()
        self.cluster_id = ""
        self.broker_id = config.broker_id
        self._given_store = store
        self._clock = clock
        self._notify = notify
        self._stopped = threading.Event()
        self._stopping = threading.Lock()  # lock order 10
        self._steps: StartupSteps | None = None
        # The embedded store has no sessions.
        self._membership = Membership(None if store is not None else SessionFile(Path(config.log_dirs[0])))
        self._lifecycle = LifecycleRecording()
        self._started = False
        self._may_hand_over = True

    # -- the start

    def startup(self, cancel: threading.Event) -> None:
        """Starts everything; returns when the broker serves requests and is registered."""
        self._lifecycle.begin(self.config, lambda: self.broker_id)
        steps = self._steps = StartupSteps(cancel, self._notify, self._lifecycle.observe)
        self.keeper.move_to(BrokerState.Starting)
        try:
            self._start(steps, cancel)
        except (StartupCancelled, LoadCancelled, Cancelled) as error:
            self._undo(steps, "cancelled", error)
            raise StartupCancelled(str(error)) from error
        except (StartupError, BindError, LogDirError, ConfigError, StoreError) as error:
            self._undo(steps, "failed", error)
            raise StartupError(str(error)) from error
        except BaseException as error:
            self._undo(steps, "failed", error)
            raise
        self._started = True
        self._lifecycle.end("start")
        self._lifecycle.publish(
            self.scheduler,
            steps,
            cache=self.metadata_cache,
            ensure_topics=self._ctx.auto_topics.ensure,
            make_channel=self._make_channel,
        )
        _log.info(
            "broker_started",
            broker_id=self.broker_id,
            version=__version__,
            compiled=compiled_by(),
            cluster_id=self.cluster_id,
            listeners=self._listener_texts(),
            http=self.http.url,
            total_ms=steps.finish(),
            steps=" ".join(f"{timing.step}={timing.ms}" for timing in steps.timings),
        )

    def _undo(self, steps: StartupSteps, outcome: str, error: BaseException) -> None:
        self.keeper.move_to(BrokerState.BrokerShuttingDown)
        self._lifecycle.end("start", outcome=outcome, detail=str(error))
        steps.undo_all()
        self.keeper.move_to(BrokerState.NotRunning)
        self._stopped.set()

    def _start(self, steps: StartupSteps, cancel: threading.Event) -> None:
        with steps.step("Scheduler"):
            self._start_scheduler(steps)
        with steps.step("Bind"):
            self._bind(steps)
        with steps.step("ZooKeeper"):
            self._start_store(steps, cancel)
        with steps.step("LogManager"):
            self._start_logs(steps, cancel)
        with steps.step("ReplicaManager"):
            self._start_replicas(steps)
        with steps.step("KafkaController"):
            self._start_controller(steps)
        with steps.step("GroupCoordinator"):
            self._start_groups(steps)
        self._security.start_authorizer(self.config, self.store, steps)
        with steps.step("KafkaApis"):
            self._start_apis(steps)
        with steps.step("DynamicConfigManager"):
            steps.undo_by("DynamicConfigManager", self.dynamic_config.shutdown)
            self.dynamic_config.startup()
        with steps.step("SocketServer"):
            steps.undo_by("SocketServer", self._sockets.stop)
            self._sockets.start(self._apis.dispatch, self.replica_manager.settle, self._sasl)
            self.replica_manager.sync_on_loop(self._sockets.invite)
        self.keeper.move_to(BrokerState.RunningAsBroker)
        with steps.step("Deposition"):
            await_deposition_after_crash(self.config, self.store, self.broker_id, self.log_manager, cancel)
        with steps.step("Healthcheck"):
            self._register(steps, cancel)
        # Undone before the registration: a controller must not see its own broker disappear.
        steps.undo_by("Controller's office", self.controller.shutdown)
        with steps.step("FirstMetadata"):
            await_first_metadata(self.metadata_cache, self.broker_id, cancel)

    def _start_scheduler(self, steps: StartupSteps) -> None:
        self.scheduler = KafkaScheduler(self.config.int("background.threads"))
        self.scheduler.startup()
        steps.undo_by("Scheduler", self.scheduler.shutdown)
        HeapKeeper().startup(self.scheduler)
        self.timer = Timer("purgatory-timer")
        steps.undo_by("Timer", self.timer.stop)

    def _bind(self, steps: StartupSteps) -> None:
        """Binds every port before anything is written to ZooKeeper. Clients are accepted when all parts are
        up. /livez and /status respond from here on, so that a long recovery can be monitored.
        """
        self._security = SecurityParts(self.config)
        self._sockets = self._security.sockets
        steps.undo_by("SocketServer", self._sockets.stop)
        self._sockets.bind()
        self.http = start_http(
            self.config,
            self.metrics,
            steps,
            status=self._reports.status,
            overview=self._reports.overview,
            unready_reasons=self._reports.unready_reasons,
            is_alive=self.is_alive,
            wrap=self._security.tls.http,
        )

    def _start_store(self, steps: StartupSteps, cancel: threading.Event) -> None:
        store = self._given_store or assembly.make_store(self.config)
        steps.undo_by("ZooKeeper", lambda: self._membership.close(store))
        store.connect(0, cancel, lambda what: self._notify(f"Waiting for ZooKeeper: {what}"))
        self.store = ClusterStore(store)

    def _start_logs(self, steps: StartupSteps, cancel: threading.Event) -> None:
        logs = self.log_manager = assembly.make_log_manager(
            self.config, self._topic_config, self.scheduler, self._clock
        )
        logs.lock_and_check()
        steps.undo_by("LogManager", lambda: logs.shutdown(self._membership.broker_epoch()))
        # Stopped before the logs: retention must not work on a closed log.
        steps.undo_by("Scheduler", self.scheduler.shutdown)
        self._membership.end_predecessors_session(access_of(self.config).secure)
        self.broker_id, self.cluster_id = settle_identity(self.config, logs.dirs, self.store)
        self.dynamic_config = DynamicConfigManager(
            self.config,
            self.broker_id,
            self.store,
            on_topic_config=self._on_topic_config,
            on_broker_config=self._on_broker_config,
            on_entity_config=self._security.quotas.apply,
            local_topics=lambda: {log.topic_partition.topic for log in logs.all_logs()},
            on_broker_read=self._security.tls.update,
            file=self._config_file,
        )
        self.dynamic_config.load_topics()
        if not logs.clean:
            self.keeper.move_to(BrokerState.RecoveringFromUncleanShutdown)
        logs.startup(cancel, self._on_load_progress)

    def _on_load_progress(self, progress: LoadProgress) -> None:
        self._reports.progress = progress
        self._notify(str(progress))

    def _topic_config(self, topic: str) -> LogConfig:
        return self.dynamic_config.topic_log_config(topic)

    def _on_topic_config(self, topic: str, config: LogConfig) -> None:
        self.log_manager.update_topic_config(topic, config)
        if config.unclean_leader_election_enable:
            self.controller.topic_config_changed(topic)

    def _start_replicas(self, steps: StartupSteps) -> None:
        self.metadata_cache = MetadataCache(self.config.inter_broker_listener_name)
        self._make_channel = assembly.make_channel_maker(self.config, self._security.tls.between_brokers)
        replication = self.replication = ReplicationService(
            self.config,
            self.broker_id,
            broker_epoch=self._membership.broker_epoch,
            log_manager=self.log_manager,
            cache=self.metadata_cache,
            timer=self.timer,
            clock=self._clock,
            listener=leadership_listener(lambda: self._coordinators),
            store=self.store,
            invite=self._sockets.invite,
            security=self._security.tls.between_brokers,
        )
        self.replica_manager = replication.replica_manager
        steps.undo_by("ReplicaManager", replication.shutdown)
        replication.startup(self.scheduler)

    def _start_controller(self, steps: StartupSteps) -> None:
        self.controller = KafkaController(
            self.config,
            self.broker_id,
            self.store,
            assembly.make_controller_channel_maker(self.config, self._security.tls.of_controller),
            clock=self._clock,
            on_state=self.keeper.set_controller,
            metrics=self.metrics,
        )
        steps.undo_by("KafkaController", self.controller.shutdown)
        self.controller.startup()
        self.topic_admin = TopicAdmin(self.config, self.store)

    def _start_groups(self, steps: StartupSteps) -> None:
        self._coordinators = Coordinators(
            lambda: self.config,
            self.replica_manager,
            self.metadata_cache,
            steps,
            make_channel=self._make_channel,
            clock=self._clock,
            metrics=self.metrics,
        )
        self._coordinators.start_groups(self.timer)
        make_channel = assembly.make_lag_channel_maker(self.config, self._security.tls.between_brokers)
        self.consumer_lag = start_consumer_lag(
            self.config,
            self._coordinators.groups,
            EndOffsets(self.replica_manager, self.metadata_cache, make_channel),
            steps,
            clock=self._clock,
            metrics=self.metrics,
        )

    def _start_apis(self, steps: StartupSteps) -> None:
        handlers = self._handlers = start_handlers(self.config, steps)
        cache, make_channel, submit = self.metadata_cache, self._make_channel, handlers.askers.submit
        auto_topics = AutoTopicCreation(self.config, cache, make_channel, submit)
        producer_ids = ProducerIdManager(
            self.broker_id, self._membership.broker_epoch, cache, make_channel, submit
        )
        coordinators = self._coordinators
        coordinators.start_transactions(producer_ids)
        peers = assembly.make_broker_peers(self.config, self.store)
        steps.undo_by("BrokerPeers", peers.close)
        follow_brokers(peers, self.metadata_cache, handlers.introducer.submit)
        self._ctx = ApiContext(
            config=self.config,
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            clock=self._clock,
            timer=self.timer,
            scheduler=self.scheduler,
            store=self.store,
            log_manager=self.log_manager,
            replica_manager=self.replica_manager,
            fetch_sessions=assembly.make_fetch_sessions(
                lambda: self.config, self._clock, self.metrics, self.replica_manager
            ),
            gone_brokers=self.replication.gone_brokers,
            leadership=self.replication.leadership,
            metadata_cache=self.metadata_cache,
            controller=self.controller,
            topic_admin=self.topic_admin,
            group_coordinator=coordinators.groups,
            transaction_coordinator=coordinators.transactions,
            dynamic_config=self.dynamic_config,
            auto_topics=auto_topics,
            producer_ids=producer_ids,
            broker_epoch=self._membership.epoch_of_requests,
            submit=handlers.clients.submit,
            submit_of_broker=handlers.brokers.submit,
            submit_long=handlers.long.submit,
            depth=Depth(self.config.str("landline.produce.validation")),
            peers=peers,
            submit_of_stranger=handlers.introducer.submit,
            check_broker_config=self._security.tls.check,
            access=self._security.access,
            quotas=self._security.quotas,
            tokens=start_tokens(
                self.config, self.store, self.controller, steps, scheduler=self.scheduler, clock=self._clock
            ),
            verification=coordinators.verification,
        )
        self._ctx.markers = coordinators.markers
        self._apis = Apis(self._ctx)
        self._security.startup(self.scheduler)
        self._sasl = self._security.make_sasl(self._ctx)
        self._reports.parts = Parts(
            self.cluster_id,
            steps,
            self._membership,
            self._listener_texts,
            store=self.store,
            cache=self.metadata_cache,
            controller=self.controller,
            lag=self.consumer_lag,
            logs=self.log_manager,
            replicas=self.replica_manager,
        )
        failures = LogDirFailureHandler(
            self.log_manager,
            self.replication.leadership,
            lambda: self.store.create_log_dir_event(self.broker_id),
            self._on_last_log_dir_failed,
        )
        steps.undo_by("LogDirFailureHandler", failures.shutdown)
        failures.start()

    def _on_broker_config(self, config: BrokerConfig) -> None:
        self.config = config
        self._ctx.config = config
        self.scheduler.resize(config.int("background.threads"))
        self._handlers.clients.resize(config.int("num.io.threads"))
        self.log_manager.update_settings(assembly.log_manager_settings(config))
        self.replication.update_config(config)
        self.controller.update_config(config)
        self.topic_admin.update_config(config)
        self._sockets.quotas.limits = assembly.connection_limits(config)

    def _register(self, steps: StartupSteps, cancel: threading.Event) -> None:
        healthcheck = self._membership.make_healthcheck(
            self.config,
            self.broker_id,
            self._advertised(),
            self.store,
            on_registered=self._on_registered,
            cancel=cancel,
        )
        steps.undo_by("Healthcheck", healthcheck.shutdown)
        healthcheck.startup()
        register_stats(
            self.metrics,
            self._apis,
            config=self.config,
            clock=self._clock,
            store=self.store,
            is_zookeeper=self._given_store is None,
            keeper=self.keeper,
            cache=self.metadata_cache,
            sockets=self._sockets,
            security=self._security,
            replication=self.replication,
            pool=self._handlers.clients,
        )

    def _advertised(self) -> list[Endpoint]:
        return assembly.advertised_endpoints(self.config, self._sockets.bound_ports)

    def _on_registered(self, broker_epoch: int) -> None:
        """Called with the new broker epoch. Raises StoreError. The controller's requests are accepted only
        from here on, so none is too early.
        """
        controller = self.store.controller_epoch()
        if controller is not None:
            self.replication.leadership.expect_controller(controller[0])
        self.controller.broker_epoch = broker_epoch
        _log.info("broker_registered", broker_id=self.broker_id, broker_epoch=broker_epoch)

    def reload(self) -> None:
        """Has a running broker take up the live keys of its properties file."""
        self.dynamic_config.reload()

    # -- the end

    def _on_last_log_dir_failed(self) -> None:
        if not self._started:
            last_log_dir.halt()
        self._may_hand_over = False
        last_log_dir.stop_or_halt(self.shutdown)

    def shutdown(self) -> None:
        """Hands over leadership, then stops everything in reverse order. Runs once; later calls wait for
        the first.
        """
        if not self._stopping.acquire(blocking=False):
            self._stopped.wait()
            return
        steps = self._steps
        if steps is None or self._stopped.is_set():
            self._stopped.set()
            return
        began, began_ns = self._clock.monotonic_ms(), time.monotonic_ns()
        if self._may_hand_over and self.config.bool("controlled.shutdown.enable"):
            with steps.stop_step("ControlledShutdown"):
                self._controlled_shutdown()
        self.keeper.move_to(BrokerState.BrokerShuttingDown)
        steps.undo_all()
        self.keeper.move_to(BrokerState.NotRunning)
        self._lifecycle.end("stop", began_ns)
        _log.info("broker_stopped", broker_id=self.broker_id, total_ms=self._clock.monotonic_ms() - began)
        self._stopped.set()

    def _controlled_shutdown(self) -> None:
        self.keeper.move_to(BrokerState.PendingControlledShutdown)
        self._notify("Controlled shutdown: handing over leadership")
        self.replication.leadership.begin_stopping()
        hand_over_leadership(
            self.config,
            self.broker_id,
            self._membership.broker_epoch(),
            self.metadata_cache,
            self._make_channel,
            tell=self._notify,
        )

    def await_shutdown(self) -> None:
        """Blocks until the broker has stopped."""
        self._stopped.wait()

    # -- status

    @property
    def bound_port(self) -> int:
        """The port of the first listener."""
        return self._sockets.bound_ports[self.config.listeners[0].listener_name]

    def is_alive(self) -> bool:
        """Whether the network threads make progress; for the watchdog."""
        return self._sockets.slowest_loop_ms() < _STUCK_LOOP_MS

    def _listener_texts(self) -> list[str]:
        return [str(endpoint) for endpoint in self._advertised()]
