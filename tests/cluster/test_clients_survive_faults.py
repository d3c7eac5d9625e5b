"""Four clients write 100,000 records each on three real hosts while brokers fall: nothing lost, doubled, reordered.

One broker is stopped by systemctl and started again, then the controller is killed by SIGKILL and systemd
starts it anew. The checker's own tests are tests/unit/test_checker*.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults import FaultRun, Scenario
from tests.support.lab_cluster import LabTarget

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

SCENARIO = Scenario(records=100_000, records_per_s=1_200, partitions=6, result_timeout_s=420)


def test_no_acknowledged_record_is_lost_doubled_or_reordered(cluster: LabTarget, tmp_path: Path) -> None:
    with FaultRun(cluster, SCENARIO, tmp_path) as run:
        for client, history in run.histories().items():
            run.verify(client, history)
