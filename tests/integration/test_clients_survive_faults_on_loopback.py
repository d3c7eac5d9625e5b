"""Four clients through a stop, a start and a kill of the controller, with three brokers as processes here.

The same scenario as on real hosts (tests/cluster), with fewer records. Against Apache Kafka it tests
the drivers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults import FaultRun, LoopbackTarget, Scenario
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(480)]

SCENARIO = Scenario(records=6_000, records_per_s=150, partitions=3)


def test_no_acknowledged_record_is_lost_doubled_or_reordered(peer: Peer, tmp_path: Path) -> None:
    with (
        peer.cluster((1, 2, 3)) as cluster,
        FaultRun(LoopbackTarget(cluster), SCENARIO, tmp_path) as run,
    ):
        for client, history in run.histories().items():
            run.verify(client, history)
