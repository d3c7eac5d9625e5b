"""Announcements are deleted when every broker has seen them, and looking for them is cheap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.zookeeper.announcements import purge
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import Stat

PARENT, MADE, OLD = "/changes", 1_000, 400


class ReadingStore(EmbeddedStore):
    """Counts the nodes that are read, and takes the first ones for old."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def get_many(self, paths: Sequence[str], *, small: bool = False) -> list[tuple[bytes, Stat] | None]:
        self.reads.append(len(paths))
        return super().get_many(paths, small=small)


@pytest.fixture
def store() -> ReadingStore:
    made = ReadingStore()
    made.connect()
    made.create(PARENT)
    for number in range(MADE):
        path, _ = made.create(f"{PARENT}/change_", b"what changed", sequence=True)
        made._nodes[path].ctime_ms = number
    return made


def numbers(store: EmbeddedStore) -> list[int]:
    return sorted(int(name.rpartition("_")[2]) for name in store.children(PARENT))


def test_those_from_before_the_horizon_are_deleted_and_no_others(store: ReadingStore) -> None:
    assert purge(store, PARENT, OLD) == OLD
    assert numbers(store) == list(range(OLD, MADE))


def test_those_of_the_last_minutes_are_not_all_read_to_find_the_old_ones(store: ReadingStore) -> None:
    assert purge(store, PARENT, 10) == 10
    assert sum(store.reads) <= 100
    store.reads.clear()
    assert purge(store, PARENT, MADE) == MADE - 10
    assert max(store.reads) <= 100, "never all at once"


def test_what_another_broker_deletes_meanwhile_is_no_error(
    store: ReadingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.get_many

    def overtaken(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        gone, *_, last = paths
        store.delete(gone)
        found = read(paths)
        store.delete(last)
        return found

    monkeypatch.setattr(store, "get_many", overtaken)
    assert purge(store, PARENT, MADE) == MADE - 2 * (MADE // 100)
    assert numbers(store) == []


def test_without_the_parent_there_are_none() -> None:
    empty = EmbeddedStore()
    empty.connect()
    assert purge(empty, PARENT, OLD) == 0
