"""The controller writes many partitions by one multi, and each of them still succeeds or fails for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import controller_store, znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerMovedError, ControllerStore, claim_controller
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import BadVersionError, NodeExistsError, Op, OpResult, StoreError
from broker.zookeeper.znodes import LeaderAndIsr

COUNT = 120
TPS = [TopicPartition("t", number) for number in range(COUNT)]
STATE = LeaderAndIsr(0, 0, (0, 1), 1)


class CountingStore:
    """A Store that counts multis."""

    def __init__(self) -> None:
        self.store = EmbeddedStore()
        self.store.connect()
        self.multis = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        self.multis += len(batches)
        return self.store.multi_many(batches)


@pytest.fixture
def counting() -> CountingStore:
    return CountingStore()


@pytest.fixture
def store(counting: CountingStore) -> ControllerStore:
    cluster = ClusterStore(counting)
    cluster.create_top_level_paths()
    cluster.create_topic("t", dict.fromkeys(range(COUNT), (0, 1)), {})
    store = claim_controller(cluster, 0)
    counting.multis = 0
    return store


def test_multis_are_few(counting, store) -> None:
    made = store.create_partition_states(dict.fromkeys(TPS, STATE))
    assert made == dict.fromkeys(TPS, replace(STATE, partition_epoch=0))
    assert counting.multis == 1 + 3, "the parent of all, and fifty partitions by each"
    counting.multis = 0
    written = store.update_partition_states(made)
    assert written == dict.fromkeys(TPS, replace(STATE, partition_epoch=1))
    assert counting.multis == 3


def test_who_fails_fails_alone(counting, store) -> None:
    other = replace(STATE, leader=1)
    store.create_partition_states({TPS[3]: other, TPS[70]: other})
    made = store.create_partition_states(dict.fromkeys(TPS, STATE))
    failed = [tp for tp, result in made.items() if isinstance(result, NodeExistsError)]
    assert failed == [TPS[3], TPS[70]]
    assert list(made) == TPS
    states = {tp: result for tp, result in made.items() if isinstance(result, LeaderAndIsr)}
    assert len(states) == COUNT - 2
    store.update_partition_states({TPS[5]: other})
    written = store.update_partition_states(states)
    assert [tp for tp, result in written.items() if isinstance(result, BadVersionError)] == [TPS[5]]
    assert [r.partition_epoch for r in written.values() if isinstance(r, LeaderAndIsr)] == [1] * (COUNT - 3)


def test_a_write_that_is_repeated_meets_its_own_first_try(store) -> None:
    first = store.create_partition_states(dict.fromkeys(TPS, STATE))
    assert store.create_partition_states(dict.fromkeys(TPS, STATE)) == first
    second = store.update_partition_states(first)
    assert store.update_partition_states(first) == second


def test_a_controller_that_was_replaced_writes_none(counting, store) -> None:
    counting.store.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMovedError):
        store.create_partition_states(dict.fromkeys(TPS, STATE))
    assert store._cluster.partition_states(TPS) == {}


def test_a_multi_is_small_beside_zookeepers_limit() -> None:
    """jute.maxbuffer is 1 MiB; a path of the longest topic twice, and the state of 20 replicas."""
    longest = TopicPartition("t" * 249, 9999)
    state = replace(STATE, isr=tuple(range(1000, 1020)))
    each = (
        len(znodes.partition_path(longest))
        + len(znodes.state_path(longest))
        + len(znodes.encode_state(state))
    )
    assert controller_store.PARTITIONS_PER_MULTI * (each + 200) < 100_000


@pytest.mark.parametrize("gone", [0, 1])
def test_notifications_for_earlier_controllers_are_deleted_and_not_read(counting, store, gone) -> None:
    """Without a controller for a day there may be ten thousand, each of which names partitions."""
    parents = (znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS)
    for parent in parents:
        for _ in range(2_500):
            counting.store.create(f"{parent}/made_", b"partitions", sequence=True)
    read: list[int] = []
    get_many, children_many = counting.store.get_many, counting.store.children_many

    def reading(paths: Sequence[str], *, small: bool = False) -> Any:
        read.append(len(paths))
        return get_many(paths, small=small)

    def listing(paths: Sequence[str]) -> Any:
        found = children_many(paths)
        for path, names in zip(paths, found, strict=True):
            for name in sorted(names or ())[:gone]:
                counting.store.delete(f"{path}/{name}")
        return found

    counting.store.get_many, counting.store.children_many = reading, listing
    store.delete_stale_notifications()
    assert [children_many([parent])[0] for parent in parents] == [[], []]
    assert sum(read) <= gone * 2 * controller_store.DELETES_PER_MULTI, "only those of a multi that failed"
