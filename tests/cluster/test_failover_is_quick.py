"""What a producer feels when the broker that leads its partition and controls the cluster goes: less than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rig.topics import await_full_isr, create_topic, delete_topics, partition_leaders
from tests.support.ack_meter import AckMeter
from tests.support.lab_cluster import LabTarget, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "failover"
# Brokers need 0.3 s after a crash and 0.1 s at a stop; librdkafka, which may be told of the
# old leader in that moment, asks again after a second. On a busy machine one try says little: the best of five counts.
CRASH_GAP_S = 3.0
STOP_GAP_S = 1.0
TRIES = 5
RECORDS = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[LabTarget]:
    with running_cluster() as target:
        create_topic(target.bootstrap, TOPIC, len(target.broker_ids()), 3, {"min.insync.replicas": "2"})
        yield target
        delete_topics(target.bootstrap, [TOPIC])


def partition_of_the_controller(cluster: LabTarget) -> tuple[int, int]:
    """The controller's id and a partition that it leads, with every replica in sync."""
    await_full_isr(cluster.bootstrap, TOPIC, 3)
    controller = cluster.controller_id()
    leaders = partition_leaders(cluster.bootstrap, TOPIC)
    return controller, next(number for number, leader in leaders.items() if leader == controller)


def test_a_killed_leader_and_controller_costs_less_than_three_seconds(cluster: LabTarget, capsys) -> None:
    gap_s = best_gap_s(cluster, CRASH_GAP_S, cluster.kill, cluster.await_return)
    with capsys.disabled():
        print(f"\nSIGKILL of leader and controller: {gap_s:.2f} s without an acknowledgement")
    assert gap_s < CRASH_GAP_S


def test_a_stopped_leader_and_controller_is_hardly_felt(cluster: LabTarget, capsys) -> None:
    gap_s = best_gap_s(cluster, STOP_GAP_S, cluster.stop, cluster.start)
    with capsys.disabled():
        print(f"\nSIGTERM of leader and controller: {gap_s:.2f} s without an acknowledgement")
    assert gap_s < STOP_GAP_S


def best_gap_s(
    cluster: LabTarget, good_s: float, end: Callable[[int], None], bring_back: Callable[[int], None]
) -> float:
    """The shortest of the longest waits of up to five tries; the first good one is enough."""
    gaps: list[float] = []
    while len(gaps) < TRIES and not any(gap_s < good_s for gap_s in gaps):
        victim, partition = partition_of_the_controller(cluster)
        with AckMeter(cluster.bootstrap, TOPIC, partition) as meter:
            meter.await_acks(RECORDS)
            end(victim)
            meter.await_acks(RECORDS)
            gaps.append(meter.longest_gap_s())
        bring_back(victim)
    return min(gaps)
