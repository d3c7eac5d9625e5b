"""The fetchers of a broker: how many there are for a leader, and who fetches what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.replica_world import ME, OTHER, Broker, state


@pytest.fixture
def broker(tmp_path: Path):
    made = Broker(tmp_path)
    yield made
    made.close()


def test_partitions_are_distributed_again_when_the_number_of_fetchers_changes(broker: Broker) -> None:
    """Each fetcher asks once and then waits for the silent leader."""
    broker.leadership.apply(1, [state(number, OTHER, 1, (ME, OTHER)) for number in range(4)])
    assert broker.asked.get(timeout=60) == [0, 1, 2, 3]
    broker.fetchers.resize(4)
    assert sorted(broker.asked.get(timeout=60)[0] for _ in range(4)) == [0, 1, 2, 3]
    assert broker.fetchers.partition_count == 4
    broker.fetchers.resize(4)
    broker.fetchers.resize(1)
    assert broker.asked.get(timeout=60) == [0, 1, 2, 3]
    assert broker.fetchers.partition_count == 4
