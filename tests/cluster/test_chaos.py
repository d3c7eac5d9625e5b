"""A short random walk of faults on the deployed cluster, under load: all heals, and nothing in the history is wrong.

The cluster has the defaults, so sessions outlast these faults; `make chaos` walks further, with short
sessions and disks of the hosts' own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.cluster import cluster_of
from chaos.faults import Victims
from chaos.rounds import Round
from chaos.scenarios import Step, steps
from chaos.walk import Walk
from lab import Lab
from tests.support.lab_cluster import LAB_ENV

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

SEED = 4
ROUNDS = 12
QUICK = (
    "SIGKILL of leader",
    "SIGKILL of controller",
    "SIGKILL of all brokers",
    "SIGTERM of leader",
    "SIGTERM of group coordinator",
    "SIGSTOP of leader",
    "freeze of follower",
    "cut from all brokers of leader",
    "isolated of controller",
    "packet loss of leader",
    "cut from ZooKeeper of leader",
    "ZooKeeper leader frozen",
)


class Printed:
    """Tells each round to whoever reads the test's output."""

    def began(self, step: Step, victims: Victims) -> None:
        print(f"{step} -> {victims}")

    def ended(self, done: Round) -> None:
        print(f"    {done.seconds:.1f} s, gap {done.gap_s:.1f} s {done.finding}")

    def judging(self, segment: int) -> None:
        print(f"judging segment {segment}")


def test_a_walk_of_faults_finds_nothing_lost_doubled_or_different(tmp_path: Path) -> None:
    name = os.environ.get(LAB_ENV, "")
    if not name or not Lab(name).exists:
        pytest.skip(f"no cluster: run `make cluster-up`, then set {LAB_ENV} to the lab's name (now {name!r})")
    with cluster_of(Lab(name)) as cluster:
        walk = steps(SEED, ROUNDS, data_disks=cluster.has_data_disks, only=QUICK)
        result = Walk(cluster, SEED, walk, tmp_path, Printed()).run()
    assert not result.findings
    assert len(result.rounds) == ROUNDS
    assert result.totals.acked > 1000
    assert result.totals.polled >= result.totals.acked
