"""How long producers go without an acknowledgement: Landline and Apache Kafka, with the same faults, hosts
and load.

Both run on the same hosts and ZooKeeper ensemble, one after the other in each repetition, with alternating
order. Both have the configuration that Landline's role sets, except for ``zookeeper.session.timeout.ms``:
Kafka keeps its default of 18 s, which allows for a JVM's pauses, and Landline has its role's value. Each
fault hits the broker that is controller and leads a partition, on a host without the ensemble's leader. The
figure is that partition's longest time without an acknowledgement.

The clients of both wait at most 3 s for an answer. A frozen host keeps its connections, so with librdkafka's
timeouts of 30 and 60 s these would be measured instead.
"""

from __future__ import annotations

import shutil
import statistics
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.ack_times import Partition
from chaos.cluster import LANDLINE, ZOOKEEPER_UNIT, ClusterUnderTest, Product, cluster_of
from chaos.faults import FAULTS, Victims
from chaos.kafka_units import KAFKA, install
from chaos.load import Load, LoadPlan, findings
from lab import Lab
from rig.topics import delete_topics
from rig.wait import wait_until

FAULTS_COMPARED = ("SIGKILL", "SIGTERM", "freeze", "power loss")
GOALS_S = {"SIGKILL": 3.0, "SIGTERM": 0.5}
GOALS_OF_KAFKA = {"freeze": 0.5, "power loss": 0.5}
"""Shares of Apache Kafka's median."""
PRODUCTS = (LANDLINE, KAFKA)
WHOLE_TIMEOUT_S = 180.0
RETURN_TIMEOUT_S = 120.0
FINISH_TIMEOUT_S = 120.0
WARM_ACKS = 1500
"""Acknowledgements before the fault: a JVM that has just started is slow at everything."""
STEADY_S = 3.0
CLIENT_CONFIG = {
    "socket.timeout.ms": 3000,
    "request.timeout.ms": 3000,
    "api.version.request.timeout.ms": 2000,
}
PLAN = LoadPlan(
    topics=1,
    partitions=3,
    producers_plain=1,
    producers_idempotent=1,
    producers_transactional=0,  # they would not wait for one partition only
    group_consumers=1,
    assigned_consumers=1,
    records_per_s=300,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurement of one fault of one product."""

    product: str
    fault: str
    repetition: int
    gap_s: float
    anomalies: int


@dataclass(frozen=True, slots=True)
class Row:
    """All samples of one fault: the lowest, median and highest gap by product, in seconds."""

    fault: str
    spreads: dict[str, tuple[float, float, float]]
    anomalies: int


def compare(
    lab: Lab, repetitions: int, directory: Path, tell: Callable[[Sample], None], faults: Sequence[str]
) -> list[Sample]:
    """Measures everything; the lab's hosts must have Landline deployed and Kafka's jars bound."""
    install(lab)
    samples = []
    for repetition in range(1, repetitions + 1):
        turn = PRODUCTS if repetition % 2 else PRODUCTS[::-1]
        for product in turn:
            with cluster_of(lab, product) as cluster, _alone(cluster):
                for fault in faults:
                    sample = _measure(cluster, fault, repetition, directory)
                    tell(sample)
                    samples.append(sample)
    return samples


@contextmanager
def _alone(cluster: ClusterUnderTest) -> Iterator[None]:
    """The product's brokers run, and restart with their host; the other product's do not."""
    _switch(cluster, cluster.product)
    cluster.await_whole([], WHOLE_TIMEOUT_S)
    try:
        yield
    finally:
        cluster.restore()
        _switch(cluster, LANDLINE)


def _switch(cluster: ClusterUnderTest, wanted: Product) -> None:
    """Stops all brokers of other products, then starts those of the wanted one."""
    for product in sorted(PRODUCTS, key=lambda each: each is wanted):
        verb = "enable" if product is wanted else "disable"

        def act(broker: int, verb: str = verb, product: Product = product) -> None:
            cluster.on_host(broker, "systemctl", verb, "--now", "--quiet", product.unit.format(id=broker))

        cluster.each(act, cluster.broker_ids)


def _measure(cluster: ClusterUnderTest, fault: str, repetition: int, directory: Path) -> Sample:
    """Uses a new load for each fault: a new topic's leaders are spread over all brokers, including
    the controller.
    """
    run = f"gaps-{uuid.uuid4().hex[:6]}"
    logs = directory / run
    with Load(cluster.bootstrap, PLAN, logs, run=run, client_config=CLIENT_CONFIG) as load:
        cluster.await_whole(load.topics, WHOLE_TIMEOUT_S)
        load.await_progress(WARM_ACKS, RETURN_TIMEOUT_S)
        _part_zookeepers_leader_from_the_controller(cluster)
        cluster.await_whole(load.topics, WHOLE_TIMEOUT_S)
        gap_s = _gap_s(cluster, load, fault)
        cluster.await_whole(load.topics, WHOLE_TIMEOUT_S)
        history = load.finish(FINISH_TIMEOUT_S)
        replica_dirs = cluster.replica_dirs(load.topics, logs / "replicas")
        anomalies = findings(history, replica_dirs)
    if not anomalies:
        shutil.rmtree(logs)
    delete_topics(cluster.bootstrap, load.topics)
    return Sample(cluster.product.name, fault, repetition, gap_s, len(anomalies))


def _part_zookeepers_leader_from_the_controller(cluster: ClusterUnderTest) -> None:
    """Makes sure that ZooKeeper's leader is not on the controller's host.

    The loss of a host with the ensemble's leader costs ten more seconds, whichever broker is on it: the
    ensemble elects a leader, and every session timeout starts again. Which product this hits would be chance.
    """
    controller = cluster.coordination.controller()
    if cluster.zookeeper_leader() == controller:
        # It stays away until another one leads: the server with the highest number would be elected again
        # at once.
        cluster.on_host(controller, "systemctl", "stop", ZOOKEEPER_UNIT)
        wait_until(
            lambda: cluster.zookeeper_leader() != controller,
            timeout=RETURN_TIMEOUT_S,
            what="another server leads the ensemble",
        )
        cluster.on_host(controller, "systemctl", "start", ZOOKEEPER_UNIT)
        wait_until(
            lambda: cluster.zookeeper_leader() != cluster.coordination.controller(),
            timeout=RETURN_TIMEOUT_S,
            what="the ensemble's leader is on another host than the controller",
        )


def _gap_s(cluster: ClusterUnderTest, load: Load, fault: str) -> float:
    """Breaks the controller, and heals it when its partition accepts writes again; returns that partition's
    longest gap.
    """
    controller = cluster.coordination.controller()
    led = [view for view in cluster.coordination.partitions(load.topics) if view.leader == controller]
    if not led:
        raise LookupError(f"the controller, broker {controller}, leads no partition of {load.topics}")
    partition = (led[0].topic, led[0].number)
    victims = Victims((controller,), next(each for each in cluster.broker_ids if each != controller))
    begin = time.monotonic()
    FAULTS[fault].inject(cluster, victims)
    wait_until(
        lambda: time.monotonic() > begin + 2 * STEADY_S and _is_steady(load, partition),
        timeout=RETURN_TIMEOUT_S,
        interval=0.5,
        what=f"{partition} is written to after {fault} of broker {controller}",
    )
    end = time.monotonic()
    FAULTS[fault].heal(cluster, victims)
    return load.gaps_s(begin, end)[partition]


def _is_steady(load: Load, partition: Partition) -> bool:
    """Whether the partition has been acknowledged without a pause for a while."""
    now = time.monotonic()
    return load.gaps_s(now - STEADY_S, now)[partition] < STEADY_S / 3


def goal_s(row: Row) -> float | None:
    """The upper limit for Landline's median; None if no goal was set, or Apache Kafka was not measured."""
    if row.fault in GOALS_S:
        return GOALS_S[row.fault]
    other = row.spreads.get(KAFKA.name)
    return GOALS_OF_KAFKA[row.fault] * other[1] if other is not None and row.fault in GOALS_OF_KAFKA else None


def rows(samples: Iterable[Sample]) -> list[Row]:
    """By fault, in order of their first samples."""
    found = list(samples)
    return [
        Row(fault, _spreads(found, fault), sum(each.anomalies for each in found if each.fault == fault))
        for fault in dict.fromkeys(each.fault for each in found)
    ]


def _spreads(samples: Sequence[Sample], fault: str) -> dict[str, tuple[float, float, float]]:
    spreads = {}
    for product in (each.name for each in PRODUCTS):
        gaps = [each.gap_s for each in samples if (each.product, each.fault) == (product, fault)]
        if gaps:
            spreads[product] = (min(gaps), statistics.median(gaps), max(gaps))
    return spreads
