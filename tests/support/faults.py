"""The scenario of faults that clients must survive, independent of how brokers are stopped: by systemd or
by signals.

It defines the order in which brokers fail and return. A ``FaultTarget`` implements this, and the checker
judges what clients saw meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from chaos.anomalies import Anomaly
from chaos.checker import check, summary
from chaos.history import Acked, Failed, History, Trouble
from chaos.resent import resent_by_client
from rig.brokers import Cluster
from rig.topics import create_topic, delete_topics, isr_sizes, record_count
from rig.wait import wait_until
from tests.support.clients.driver import Workload
from tests.support.fetched_logs import FetchedLogs
from tests.support.workloads import DRIVERS, WorkloadProcess, audit, new_gate

MIN_INSYNC_REPLICAS = 2
REPLICATION_FACTOR = 3
RECOVERY_TIMEOUT_S = 120.0
TROUBLES_MAX = 6
"""The number of reported errors that a client's readers may have when brokers fail; more means that the
cluster does not heal.
"""


class FaultTarget(Protocol):
    """Three brokers that can be stopped, started and killed by id."""

    bootstrap: str

    def broker_ids(self) -> Sequence[int]:
        """All brokers, running or not."""

    def controller_id(self) -> int:
        """The current controller."""

    def stop(self, broker_id: int) -> None:
        """Stops it in an orderly way and returns when it has ended."""

    def start(self, broker_id: int) -> None:
        """Starts a stopped broker and returns when it serves."""

    def kill(self, broker_id: int) -> None:
        """Kills it with SIGKILL."""

    def await_return(self, broker_id: int) -> None:
        """Restarts a killed broker, or waits until its supervisor did."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The amount that each client writes, and its rate during the faults."""

    records: int
    records_per_s: float
    partitions: int = 6
    result_timeout_s: float = 300.0


class LoopbackTarget:
    """Broker processes on this machine as a ``FaultTarget``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap

    def broker_ids(self) -> Sequence[int]:
        return sorted(self._cluster.brokers)

    def controller_id(self) -> int:
        return self._cluster.controller().broker_id

    def stop(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].stop()

    def start(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].start()

    def kill(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].kill()

    def await_return(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].start()


class FaultRun:
    """A run of all four clients through the faults of one scenario, on its own topics, which are deleted if
    it passed.
    """

    def __init__(self, target: FaultTarget, scenario: Scenario, log_dir: Path) -> None:
        self._target = target
        self._scenario = scenario
        self._log_dir = log_dir
        run = uuid.uuid4().hex[:6]
        self._topics = {client: f"faults-{run}-{client}" for client in DRIVERS}

    def __enter__(self) -> Self:
        config = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
        for topic in self._topics.values():
            create_topic(self._target.bootstrap, topic, self._scenario.partitions, REPLICATION_FACTOR, config)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            delete_topics(self._target.bootstrap, self._topics.values())

    def histories(self) -> dict[str, History]:
        """Runs the scenario; returns the clients' histories by name.

        First a broker that is not the controller is stopped and restarted, then the controller is killed.
        Between and after, all replicas get back in sync. The last tenth of the records is written after
        the faults.
        """
        gate = new_gate()
        with ExitStack() as stack:
            running = [
                stack.enter_context(WorkloadProcess(workload, gate, self._log_dir / f"{workload.client}.log"))
                for workload in self._workloads()
            ]
            self._inject()
            gate.set()
            return {each.workload.client: each.result(self._scenario.result_timeout_s) for each in running}

    def verify(self, client: str, history: History) -> None:
        """Checks that every record is acknowledged, read, in order and once in the log, and that a second
        reading agrees.
        """
        troubles = [f"{client}: {trouble.client}: {trouble.what}" for trouble in history.of_type(Trouble)]
        print("\n".join(troubles))
        assert len(troubles) <= TROUBLES_MAX, troubles
        failed = [event.reason for event in history.of_type(Failed)]
        assert not failed, f"{client}: {len(failed)} records failed: {failed[0]}"
        acked = sum(1 for _ in history.of_type(Acked))
        assert acked == self._scenario.records, f"{client}: {acked} acknowledged"
        assert not (found := self._findings(history)), f"{client}: {summary(found)}"
        again = self._findings(audit(self._target.bootstrap, self._topics[client], history))
        assert not again, f"{client}, read once more: {summary(again)}"

    def _findings(self, history: History) -> list[Anomaly]:
        """The anomalies, except records that the client itself sent again in a new producer epoch: no broker
        can detect those.
        """
        found = check(history)
        resent = resent_by_client(found, history, FetchedLogs(self._target.bootstrap)) if found else set()
        if resent:
            print(f"{len(resent)} records were sent again by their client in a new producer epoch")
        return [anomaly for anomaly in found if anomaly not in resent]

    def _workloads(self) -> Iterable[Workload]:
        for client, topic in self._topics.items():
            yield Workload(
                client=client,
                bootstrap=self._target.bootstrap,
                topic=topic,
                partitions=self._scenario.partitions,
                records=self._scenario.records,
                records_per_s=self._scenario.records_per_s,
                held_back=self._scenario.records // 10,
            )

    def _inject(self) -> None:
        target = self._target
        self._wait("every client has written", self._everybody_has_written)
        bystander = next(each for each in target.broker_ids() if each != target.controller_id())
        target.stop(bystander)
        target.start(bystander)
        # With min.insync.replicas 2 of 3, one broker at a time may be away.
        self._wait("all replicas are in sync after the stop", self._all_in_sync)
        controller = target.controller_id()
        target.kill(controller)
        target.await_return(controller)
        self._wait("all replicas are in sync after the kill", self._all_in_sync)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, timeout=RECOVERY_TIMEOUT_S, interval=0.5, what=what)

    def _everybody_has_written(self) -> bool:
        return all(record_count(self._target.bootstrap, topic) for topic in self._topics.values())

    def _all_in_sync(self) -> bool:
        sizes = [isr_sizes(self._target.bootstrap, topic) for topic in self._topics.values()]
        return all(size == REPLICATION_FACTOR for each in sizes for size in each.values())
