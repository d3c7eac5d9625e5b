"""The chaos load on three brokers as processes here: a kill leaves a clean history, a changed replica is found,
and transactions go on.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from chaos.anomalies import AnomalyKind, summary
from chaos.checker import main
from chaos.history import COMMITTED, Acked, Assigned, Committed, Ended, OffsetSent, Polled, Stored, Wrote
from chaos.load import Load, LoadPlan, findings
from rig.brokers import Cluster
from rig.topics import isr_sizes
from rig.wait import wait_until
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

BROKERS = (1, 2, 3)
PLAN = LoadPlan(topics=2, partitions=2, records_per_s=400, seed=1)


def all_in_sync(cluster: Cluster, load: Load) -> bool:
    sizes = [isr_sizes(cluster.bootstrap, topic) for topic in load.topics]
    return all(size == len(BROKERS) for each in sizes for size in each.values())


def test_a_killed_broker_leaves_a_clean_history_and_a_changed_replica_is_found(
    peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with peer.cluster(BROKERS) as cluster:
        directories = {number: broker.log_dir for number, broker in cluster.brokers.items()}
        with Load(cluster.bootstrap, PLAN, tmp_path / "load", run="chaos") as load:
            load.await_progress(200, timeout_s=60)
            load.await_transactions(timeout_s=60)
            killed_s = time.monotonic()
            victim = cluster.controller()
            victim.kill()
            load.await_progress(100, timeout_s=60)
            load.rebalance()
            victim.start()
            wait_until(lambda: all_in_sync(cluster, load), timeout=60, what="all replicas are in sync")
            load.await_progress_everywhere(timeout_s=60)
            load.await_transactions(timeout_s=60)
            healed_s = time.monotonic()
            load.observe_high_watermarks()
            history = load.finish(timeout_s=90)
            assert load.finish(timeout_s=1) is history
            worst_s = load.worst_gap_s(killed_s, healed_s)
            assert 0 < load.longest_gap_s(killed_s, healed_s) <= worst_s <= healed_s - killed_s
        assert not (found := findings(history, directories)), summary(found)
        assert {type(event) for event in history.events} >= {Acked, Polled, Committed, Assigned, OffsetSent}
        outcomes = Counter(event.outcome for event in history.of_type(Ended))
        assert load.committed() == outcomes[COMMITTED] > 1
        copied = {event.copy_of for event in history.of_type(Wrote)} - {""}
        assert copied == {
            event.record_id for event in history.of_type(Stored) if event.topic == load.topics[-2]
        }
        assert load.acked() == sum(1 for _ in history.of_type(Acked)) > 400
        assert load.polled() == sum(1 for _ in history.of_type(Polled)) > load.acked()

        for broker in cluster.brokers.values():
            broker.kill()
        changed = next(directories[2].glob(f"{load.topics[0]}-0/*.log"))
        content = bytearray(changed.read_bytes())
        content[len(content) // 2] ^= 0x20
        changed.write_bytes(content)
        found = findings(history, directories)
        assert [each.kind for each in found] == [AnomalyKind.DIVERGED], summary(found)
        assert "a WRONG CRC" in found[0].detail
        paths = [str(path) for path in load.history_paths]
        assert main([*paths, "--replicas", *(str(path) for path in directories.values())]) == 1
        assert "diverged: chaos-0-0: from offset" in capsys.readouterr().out
        assert main(paths) == 0
