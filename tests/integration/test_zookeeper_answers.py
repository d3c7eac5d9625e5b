"""An ensemble of three whose answers fail while brokers run: a leader that stands still, disks that do not answer, no
quorum. However long it lasts beside sessions and time-outs, soon after it is over all is as if it had not been.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from tests.support.brokers import Cluster
from tests.support.disks import SmallDisk, needs_small_disks
from tests.support.landline_broker import LandlineBroker
from tests.support.topics import create_topic, isr_sizes, partition_leaders
from tests.support.wait import last_for, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300), needs_small_disks()]

SESSION_MS = 3_000
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
FAULT_S = 2.5 * SESSION_MS / 1000
SOON_S = 10.0
CONFIG: dict[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 1_500,
    "offsets.topic.num.partitions": 2,
}
BROKERS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Site:
    ensemble: ZooKeeperEnsemble
    disks: dict[int, SmallDisk]
    cluster: Cluster
    brokers: dict[int, LandlineBroker]

    def controllers(self, besides: int = 0) -> list[int]:
        """The brokers that take themselves for the controller."""
        return [each for each, broker in self.brokers.items() if each != besides and _controls(broker)]


def _controls(broker: LandlineBroker) -> bool:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as answer:
        return f"\n{ACTIVE} 1" in answer.read().decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("answers")
    with ExitStack() as stack:
        disks = {n: stack.enter_context(SmallDisk(directory / f"disk-{n}", 128)) for n in (1, 2, 3)}
        places = {number: disk.path / "data" for number, disk in disks.items()}
        ensemble = stack.enter_context(ZooKeeperEnsemble(directory, disks=places))
        connect = f"{ensemble.connect_string}/answers"
        brokers = {n: LandlineBroker(n, connect, directory / f"broker-{n}", CONFIG) for n in BROKERS}
        cluster = stack.enter_context(Cluster(brokers, connect))
        create_topic(cluster.bootstrap, "old", 3, 3)
        yield Site(ensemble, disks, cluster, brokers)


@contextmanager
def leader_stands_still(site: Site) -> Iterator[None]:
    process = site.ensemble.servers[site.ensemble.leader()].process
    process.freeze()
    try:
        yield
    finally:
        process.thaw()


@contextmanager
def disks_do_not_answer(site: Site) -> Iterator[None]:
    """Of the leader and one follower: nothing can be written, and sessions live on."""
    leader = site.ensemble.leader()
    frozen = [site.disks[leader], next(disk for number, disk in site.disks.items() if number != leader)]
    with ExitStack() as stack:
        for disk in frozen:
            disk.freeze()
            stack.callback(disk.thaw)
        yield


@contextmanager
def no_quorum(site: Site) -> Iterator[None]:
    leader = site.ensemble.leader()
    gone = [leader, next(number for number in site.disks if number != leader)]
    for number in gone:
        site.ensemble.servers[number].kill()
    try:
        yield
    finally:
        for number in gone:
            site.ensemble.servers[number].start_nowait()
        for number in gone:
            site.ensemble.servers[number].wait_ready()


@pytest.mark.parametrize("fault", [leader_stands_still, disks_do_not_answer, no_quorum])
def test_soon_after_its_recovery_there_is_one_controller_and_nothing_waits_for_a_restart(
    site: Site, fault: Callable, request: pytest.FixtureRequest
) -> None:
    (controller,) = wait_until(lambda: len(found := site.controllers()) == 1 and found)
    still = next(number for number in BROKERS if number != controller)
    others = ",".join(broker.bootstrap for number, broker in site.brokers.items() if number != still)
    # Each leads one again, as is preferred: else one may go to the broker that is frozen, after it was looked at.
    leaders = wait_until(
        lambda: len(set((found := partition_leaders(others, "old")).values())) == 3 and found
    )
    with ExitStack() as thawed:
        with fault(site):
            # Leaders want it out of their ISRs while the fault lasts: the controller has to write, and is late.
            site.brokers[still].process.freeze()
            thawed.callback(site.brokers[still].process.thaw)
            producer = Producer({"bootstrap.servers": others, "acks": "1"})
            for number in (number for number, leader in leaders.items() if leader != still):
                producer.produce("old", b"behind which the frozen one stays", partition=number)
            assert producer.flush(FAULT_S) == 0
            last_for(FAULT_S)
        wait_until(lambda: len(site.controllers(besides=still)) == 1, SOON_S, what="one controller")
        wait_until(lambda: set(isr_sizes(others, "old").values()) == {2}, SOON_S, what="ISRs shrink")
    wait_until(lambda: set(isr_sizes(others, "old").values()) == {3}, SOON_S, what="ISRs grow")
    wait_until(lambda: len(site.controllers()) == 1, SOON_S, what="one controller of all")
    create_topic(others, f"new-{fault.__name__}", 3, 3)
    for broker in site.brokers.values():
        wait_until(
            lambda b=broker: set(isr_sizes(b.bootstrap, f"new-{fault.__name__}").values()) == {3}, SOON_S
        )
