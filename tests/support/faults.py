"""The scenario of faults that clients must survive, whatever stops the brokers: systemd on hosts, or signals here.

It tells in which order brokers fall and return; how to do it is a ``FaultTarget``'s, what clients see meanwhile is
the checker's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.brokers import Cluster
from tests.support.checker import check, summary
from tests.support.clients.driver import Workload
from tests.support.history import Acked, Failed, History
from tests.support.topics import create_topic, isr_sizes, record_count
from tests.support.wait import wait_until
from tests.support.workloads import DRIVERS, WorkloadProcess, audit, new_gate

MIN_INSYNC_REPLICAS = 2
REPLICATION_FACTOR = 3
RECOVERY_TIMEOUT_S = 120.0


class FaultTarget(Protocol):
    """Three brokers that can be stopped, started and killed by id."""

    bootstrap: str

    def broker_ids(self) -> Sequence[int]: ...
    def controller_id(self) -> int: ...
    def stop(self, broker_id: int) -> None: ...
    def start(self, broker_id: int) -> None: ...
    def kill(self, broker_id: int) -> None: ...
    def await_return(self, broker_id: int) -> None:
        """Brings a killed broker back, or waits until its supervisor did."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How much each client writes, and how fast while the faults go on."""

    records: int
    records_per_s: float
    partitions: int = 6
    result_timeout_s: float = 300.0


class LoopbackTarget:
    """Broker processes of this machine as a ``FaultTarget``."""

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


def histories_of_all_clients(target: FaultTarget, scenario: Scenario, logs: Path) -> dict[str, History]:
    """All four clients at once through the faults; their histories by client name.

    First one broker that does not control is stopped and started again, then the controller is killed; between and
    after, all replicas are back in sync. The last tenth of the records is written when the faults are over.
    """
    gate = new_gate()
    topics = {client: f"faults-{client}" for client in DRIVERS}
    for topic in topics.values():
        config = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
        create_topic(target.bootstrap, topic, scenario.partitions, REPLICATION_FACTOR, config)
    with ExitStack() as stack:
        running = [
            stack.enter_context(WorkloadProcess(_workload(target, scenario, client, topic), gate, logs / f"{client}.log"))
            for client, topic in topics.items()
        ]
        wait_until(
            lambda: all(record_count(target.bootstrap, topic) for topic in topics.values()),
            timeout=RECOVERY_TIMEOUT_S,
            interval=0.5,
            what="every client has written",
        )
        _inject(target, topics)
        gate.set()
        return {each.workload.client: each.result(scenario.result_timeout_s) for each in running}


def assert_nothing_wrong(histories: Mapping[str, History], scenario: Scenario, bootstrap: str) -> None:
    """Every client's every record acknowledged, read, in order, and in the log once; a second reading agrees."""
    for client, history in histories.items():
        failed = [event.reason for event in history.of_type(Failed)]
        assert not failed, f"{client}: {len(failed)} records failed: {failed[0]}"
        assert sum(1 for _ in history.of_type(Acked)) == scenario.records, f"{client}: not all acknowledged"
        assert not (found := check(history)), f"{client}: {summary(found)}"
        again = check(audit(bootstrap, f"faults-{client}", history))
        assert not again, f"{client}, read once more: {summary(again)}"


def _workload(target: FaultTarget, scenario: Scenario, client: str, topic: str) -> Workload:
    return Workload(
        client=client,
        bootstrap=target.bootstrap,
        topic=topic,
        partitions=scenario.partitions,
        records=scenario.records,
        records_per_s=scenario.records_per_s,
        held_back=scenario.records // 10,
    )


def _inject(target: FaultTarget, topics: Mapping[str, str]) -> None:
    bystander = next(each for each in target.broker_ids() if each != target.controller_id())
    target.stop(bystander)
    target.start(bystander)
    _wait_for_full_isr(target.bootstrap, topics)
    controller = target.controller_id()
    target.kill(controller)
    target.await_return(controller)
    _wait_for_full_isr(target.bootstrap, topics)


def _wait_for_full_isr(bootstrap: str, topics: Mapping[str, str]) -> None:
    """A broker may fall only when the others are in sync: min.insync.replicas 2 of 3 allows one at a time."""

    def all_in_sync() -> bool:
        return all(
            size == REPLICATION_FACTOR for topic in topics.values() for size in isr_sizes(bootstrap, topic).values()
        )

    wait_until(all_in_sync, timeout=RECOVERY_TIMEOUT_S, interval=0.5, what="all replicas are in sync again")
