"""Brokers of both kinds stopped, killed and frozen under load, by a seed, and nothing is lost.

The short form plays a few chosen rounds. ``make chaos-mixed ROUNDS=... SEED=...`` plays random ones.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.coordinator.common.partitioning import partition_for
from broker.utils.topic_partition import TopicPartition
from chaos.anomalies import summary
from chaos.coordination import TRANSACTION_TOPIC
from chaos.load import Load, LoadPlan, verdict
from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import KAFKA, LANDLINE, OFFSETS_TOPIC, MixedCluster
from tests.mixed.rounds import Fault, Round, plan, play
from tests.support import log_dump
from tests.support.peers import PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TWO_KAFKA = {1: KAFKA, 2: LANDLINE, 3: KAFKA}
ONE_KAFKA = {1: LANDLINE, 2: KAFKA, 3: LANDLINE}
CHOSEN = (
    Round(LANDLINE, 1, Fault.KILL, LANDLINE),
    Round(KAFKA, 2, Fault.KILL, KAFKA),
    Round(KAFKA, 1, Fault.FREEZE, LANDLINE, 3.0),
)
"""Either kind recovers what the other left when it was killed; both mixes of kinds are passed through."""
SMALL_SEGMENTS = 100_000
BROKER_CONFIG = {"log.segment.bytes": SMALL_SEGMENTS}  # topics may be set to as little then
PLAN = LoadPlan(records_per_s=300, value_size=200, producers_transactional=2)
LOAD_TIMEOUT_S = 180.0
RANDOM_ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1, 1_000_000))


def play_under_load(cluster: MixedCluster, rounds: Iterable[Round], log_dir: Path) -> set[PeerKind]:
    """Plays the rounds and judges what all clients saw and what all replicas hold. Returns which kinds have
    coordinated a producer's transactions.
    """
    coordinated: set[PeerKind] = set()
    cluster.create_offsets_topic()
    small_segments = {"segment.bytes": str(SMALL_SEGMENTS)}
    with Load(cluster.bootstrap, PLAN, log_dir, run="load", topic_config=small_segments) as load:
        for number, one in enumerate(rounds, 1):
            load.await_progress(50, LOAD_TIMEOUT_S)
            load.await_transactions(LOAD_TIMEOUT_S)
            began = time.monotonic()
            play(cluster, one, [*load.topics, OFFSETS_TOPIC, TRANSACTION_TOPIC])
            gap = load.longest_gap_s(began, time.monotonic())
            coordinated.add(coordinating(cluster, load.transactional_id))
            print(f"{number:4} {one}: in sync again, longest gap {gap:.1f} s", flush=True)
        load.await_progress(200, LOAD_TIMEOUT_S)
        load.await_transactions(LOAD_TIMEOUT_S)
        history = load.finish(LOAD_TIMEOUT_S)
        print(
            f"{load.acked()} acknowledged, {load.failed()} failed, {load.polled()} read, "
            f"{load.committed()} transactions committed",
            flush=True,
        )
    cluster.stop_all()
    found = verdict(history, cluster.log_dirs())
    assert not found, summary(found)
    assert load.failed() == 0
    wrong = log_dump.problems(*cluster.log_dirs().values())
    assert not wrong, "\n".join(wrong[:20])
    return coordinated


def coordinating(cluster: MixedCluster, transactional_id: str) -> PeerKind:
    """The kind of the broker that coordinates this producer's transactions."""
    states = cluster.states([TRANSACTION_TOPIC])
    number = partition_for(transactional_id, len(states))
    return cluster.kinds[states[TopicPartition(TRANSACTION_TOPIC, number)].leader]


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_either_kind_is_killed_or_frozen_and_recovers_the_others_files(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with MixedCluster(zookeeper, tmp_path / "cluster", TWO_KAFKA, BROKER_CONFIG) as cluster:
        play_under_load(cluster, CHOSEN, tmp_path)


@pytest.mark.skipif(not RANDOM_ROUNDS, reason="the long form: make chaos-mixed")
@pytest.mark.timeout(600 + 120 * RANDOM_ROUNDS)
@pytest.mark.parametrize("kinds", [TWO_KAFKA, ONE_KAFKA], ids=["two kafka", "one kafka"])
def test_nothing_is_lost_in_random_rounds(
    zookeeper: ZooKeeperServer, tmp_path: Path, kinds: dict[int, PeerKind]
) -> None:
    print(f"\nSEED={SEED} ROUNDS={RANDOM_ROUNDS}", flush=True)
    with MixedCluster(zookeeper, tmp_path / "cluster", kinds, BROKER_CONFIG) as cluster:
        assert play_under_load(cluster, plan(SEED, RANDOM_ROUNDS, kinds), tmp_path) == {KAFKA, LANDLINE}
