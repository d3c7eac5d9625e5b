"""Three brokers and an ensemble of three whose answers fail for a while, and the state that is required
soon after.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from rig.brokers import Cluster
from rig.disks import SmallDisk
from rig.landline_broker import LandlineBroker
from rig.topics import create_topic, isr_sizes, partition_leaders
from rig.wait import last_for, wait_until
from rig.zookeeper import ZooKeeperEnsemble

SESSION_MS = 3_000
SOON_S = 10.0
BROKERS = (1, 2, 3)
_ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
_CONFIG: dict[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 1_500,
    "offsets.topic.num.partitions": 2,
}
_LOOKS = 5
_SLOW_S, _QUICK_S = 1.2, 0.05


@dataclass(frozen=True, slots=True)
class AnswersSite:
    """The cluster of a test. ``disks`` are the servers' own; empty if they share the host's."""

    ensemble: ZooKeeperEnsemble
    disks: dict[int, SmallDisk]
    cluster: Cluster
    brokers: dict[int, LandlineBroker]

    def controllers(self, besides: int = 0) -> list[int]:
        """The brokers that consider themselves the controller."""
        return [each for each, broker in self.brokers.items() if each != besides and _controls(broker)]

    def assert_one_controller(self, besides: int = 0) -> None:
        """Checks repeatedly that there is one controller, always the same."""
        looks = []
        for _ in range(_LOOKS):
            looks.append(self.controllers(besides))
            last_for(0.2)
        assert len(looks[0]) == 1, looks
        assert all(look == looks[0] for look in looks), looks


Fault = Callable[[AnswersSite], AbstractContextManager[None]]


def _controls(broker: LandlineBroker) -> bool:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as answer:
        return f"\n{_ACTIVE} 1" in answer.read().decode()


@contextmanager
def answers_site(directory: Path, *, own_disks: bool) -> Iterator[AnswersSite]:
    with ExitStack() as stack:
        numbers = BROKERS if own_disks else ()
        disks = {n: stack.enter_context(SmallDisk(directory / f"disk-{n}", 128)) for n in numbers}
        places = {number: disk.path / "data" for number, disk in disks.items()}
        ensemble = stack.enter_context(ZooKeeperEnsemble(directory, disks=places))
        connect = f"{ensemble.connect_string}/answers"
        brokers = {n: LandlineBroker(n, connect, directory / f"broker-{n}", _CONFIG) for n in BROKERS}
        cluster = stack.enter_context(Cluster(brokers, connect))
        create_topic(cluster.bootstrap, "old", 3, 3)
        yield AnswersSite(ensemble, disks, cluster, brokers)


@contextmanager
def leader_stands_still(site: AnswersSite) -> Iterator[None]:
    process = site.ensemble.servers[site.ensemble.leader()].process
    process.freeze()
    try:
        yield
    finally:
        process.thaw()


def _majoritys_disks(site: AnswersSite) -> list[SmallDisk]:
    """The disks of the leader and of one follower."""
    leader = site.ensemble.leader()
    return [site.disks[leader], next(disk for number, disk in site.disks.items() if number != leader)]


@contextmanager
def disks_do_not_answer(site: AnswersSite) -> Iterator[None]:
    """On the leader and one follower: nothing can be written, and sessions stay alive."""
    with ExitStack() as stack:
        for disk in _majoritys_disks(site):
            disk.freeze()
            stack.callback(disk.thaw)
        yield


@contextmanager
def disks_are_slow(site: AnswersSite) -> Iterator[None]:
    """On the leader and one follower: every write waits a second or more, and succeeds."""
    disks, over = _majoritys_disks(site), threading.Event()

    def pulse() -> None:
        while not over.is_set():
            with ExitStack() as stack:
                for disk in disks:
                    disk.freeze()
                    stack.callback(disk.thaw)
                over.wait(_SLOW_S)
            over.wait(_QUICK_S)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def no_quorum(site: AnswersSite) -> Iterator[None]:
    leader = site.ensemble.leader()
    gone = [leader, next(number for number in site.ensemble.servers if number != leader)]
    for number in gone:
        site.ensemble.servers[number].kill()
    try:
        yield
    finally:
        for number in gone:
            site.ensemble.servers[number].start_nowait()
        for number in gone:
            site.ensemble.servers[number].wait_ready()


def endure(site: AnswersSite, fault: Fault, fault_s: float, name: str) -> None:
    """Tests one fault: within ten seconds of its end, there is one controller and the late writes are done.

    Nothing waits for a restart.
    """
    (controller,) = wait_until(lambda: len(found := site.controllers()) == 1 and found)
    still = next(number for number in BROKERS if number != controller)
    others = ",".join(broker.bootstrap for number, broker in site.brokers.items() if number != still)
    # Each leads one again, as preferred: otherwise a partition might move to the broker that is frozen after
    # this check.
    leaders = wait_until(
        lambda: len(set((found := partition_leaders(others, "old")).values())) == 3 and found
    )
    with ExitStack() as thawed:
        with fault(site):
            # Leaders want to remove it from their ISRs during the fault: the controller has to write, and
            # is late.
            site.brokers[still].process.freeze()
            thawed.callback(site.brokers[still].process.thaw)
            producer = Producer({"bootstrap.servers": others, "acks": "1"})
            for number in (number for number, leader in leaders.items() if leader != still):
                producer.produce("old", b"behind which the frozen one stays", partition=number)
            assert producer.flush(fault_s) == 0
            last_for(fault_s)
        recovered = time.monotonic()

        def left_s() -> float:
            return recovered + SOON_S - time.monotonic()

        wait_until(lambda: len(site.controllers(besides=still)) == 1, left_s(), what="one controller")
        wait_until(lambda: set(isr_sizes(others, "old").values()) == {2}, left_s(), what="ISRs shrink")
        site.assert_one_controller(besides=still)
    wait_until(lambda: set(isr_sizes(others, "old").values()) == {3}, SOON_S, what="ISRs grow")
    site.assert_one_controller()
    create_topic(others, f"new-{name}", 3, 3)
    for broker in site.brokers.values():
        wait_until(lambda b=broker: set(isr_sizes(b.bootstrap, f"new-{name}").values()) == {3}, SOON_S)
