"""A cluster of brokers whose locks are traced."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.network import processor
from rig.brokers import Cluster
from rig.landline_broker import LandlineBroker
from rig.zookeeper import ZooKeeperServer
from tests.support.compiled import is_compiled
from tests.support.traced_broker import read_report


@contextmanager
def traced_cluster(
    zookeeper: ZooKeeperServer, directory: Path, config: Mapping[str, object], takes: set[str]
) -> Iterator[Cluster]:
    """Three brokers. At the end none has taken a lock against the order of docs/design.md, and together they have
    taken the locks of these names.
    """
    zk_connect = zookeeper.chroot()
    reports = {n: directory / f"locks-{n}" for n in (1, 2, 3)}
    brokers = {
        n: LandlineBroker(
            n,
            zk_connect,
            directory / f"broker-{n}",
            dict(config),
            command=[sys.executable, "-m", "tests.support.traced_broker", str(report)],
        )
        for n, report in reports.items()
    }
    with Cluster(brokers, zk_connect) as running:
        yield running
    seen = [read_report(report) for report in reports.values()]
    assert not set().union(*(problems for _, _, problems in seen))
    if not is_compiled(processor):  # which names no locks
        assert takes <= set().union(*(names for names, _, _ in seen))
