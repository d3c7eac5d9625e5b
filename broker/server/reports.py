"""What a broker reports of itself over HTTP: the content of /status, the status page, and why it is not ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker import __version__
from broker.controller.controller import KafkaController
from broker.log.loading.load_progress import LoadProgress
from broker.log.log_manager import LogManager
from broker.replication.replica_manager import ReplicaManager
from broker.server.config_file import ConfigFile
from broker.server.consumer_lag import ConsumerLag
from broker.server.http.status import NOT_RUNNING, running_status
from broker.server.lifecycle.broker_state import StateKeeper
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.server.registration.membership import Membership
from broker.utils.clock import Clock
from broker.zookeeper.cluster_store import ClusterStore

if TYPE_CHECKING:
    from broker.server.holders import HoldersReader
    from broker.server.http.overview import Holders, Overview


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running broker that its reports are read from. ``listeners`` returns the advertised ones."""

    cluster_id: str
    steps: StartupSteps
    membership: Membership
    listeners: Callable[[], Sequence[str]]
    store: ClusterStore
    cache: MetadataCache
    controller: KafkaController
    lag: ConsumerLag
    logs: LogManager
    replicas: ReplicaManager


class Reports:
    """The reports of one broker, from its first step on. All methods may be called from any thread.

    ``broker_id`` returns the id, which is known once the log directories are read. ``file`` is the properties
    file, if there is one. ``parts`` is set before the broker runs, and ``progress`` while it loads its logs.
    """

    def __init__(
        self, keeper: StateKeeper, clock: Clock, broker_id: Callable[[], int], file: ConfigFile | None
    ) -> None:
        self.parts: Parts | None = None
        self.progress: LoadProgress | None = None
        self._keeper = keeper
        self._clock = clock
        self._broker_id = broker_id
        self._file = file
        self._holders: HoldersReader | None = None

    def unready_reasons(self) -> list[str]:
        """The reasons why clients should not use this broker; empty if it is ready."""
        parts = self._running()
        if parts is None:
            return [f"state is {self._keeper.state.name}"]
        return parts.membership.doubts(parts.cache, self._broker_id())

    def status(self) -> dict[str, Any]:
        """The JSON of /status."""
        basic = {"broker_id": self._broker_id(), "version": __version__, "state": self._keeper.state.name}
        parts = self._running()
        if parts is None:
            loading = self.progress
            return {**basic, **NOT_RUNNING, "loading": None if loading is None else loading._asdict()}
        running = running_status(
            cluster_id=parts.cluster_id,
            controller=parts.controller,
            broker_epoch=parts.membership.broker_epoch(),
            listeners=parts.listeners(),
            steps=parts.steps,
            store=parts.store,
            cache=parts.cache,
            replicas=parts.replicas,
            logs=parts.logs,
        )
        file = self._file
        return {**basic, **running, "loading": None, "config_file": None if file is None else file.status()}

    def overview(self) -> Overview:
        """What the status page shows."""
        from broker.server.http.overview_of import basic_overview, running_overview

        parts = self._running()
        cluster_id = "" if self.parts is None else self.parts.cluster_id
        basic = basic_overview(self._broker_id(), self._keeper, self._clock, cluster_id, self.progress)
        if parts is None:
            return basic
        return running_overview(
            basic,
            cache=parts.cache,
            controller=parts.controller,
            lag=parts.lag,
            logs=parts.logs,
            replicas=parts.replicas,
            unready=self.unready_reasons(),
            holders=self._holders_now(parts),
        )

    def _holders_now(self, parts: Parts) -> Holders | None:
        if self._holders is None:
            from broker.server.holders import HoldersReader

            self._holders = HoldersReader(parts.store.store, self._clock)
        return self._holders.current()

    def _running(self) -> Parts | None:
        return self.parts if self._keeper.is_running else None
