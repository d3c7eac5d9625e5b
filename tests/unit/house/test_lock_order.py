"""The documented order of locks is the code's, and its checker finds violations that never deadlocked."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stress.lock_graph import LockGraph
from tests.stress.lock_sites import lock_sites
from tests.stress.lock_table import written_order
from tests.stress.traced import TracedLock, TracedRLock, traced_locks

NAMES = ("first", "second", "third")


@pytest.fixture
def graph() -> LockGraph:
    return LockGraph()


def in_a_thread(action: Callable[[], object]) -> None:
    """Runs the action to its end: no two threads of a test ever run at the same time."""
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def take(*locks: TracedLock | TracedRLock) -> None:
    for lock in locks:
        lock.acquire()
    for lock in reversed(locks):
        lock.release()


def test_every_lock_of_the_broker_stands_in_the_written_order_with_its_number() -> None:
    noted = {site.name: site.noted for site in lock_sites()}
    assert noted == written_order(), "docs/design.md and the comments `lock order N` at the locks"


def test_no_two_locks_of_the_broker_have_one_name() -> None:
    names = [site.name for site in lock_sites()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", [TracedLock, TracedRLock])
def test_an_inversion_that_did_not_hang_is_found(graph: LockGraph, kind: type[TracedLock]) -> None:
    first, second = kind("first", graph), kind("second", graph)
    in_a_thread(lambda: take(first, second))
    assert graph.problems == []
    in_a_thread(lambda: take(second, first))
    assert len(graph.problems) == 1
    assert "inversion second -> first -> second" in graph.problems[0]


def test_a_cycle_of_three_of_which_no_two_are_inverted_is_found(graph: LockGraph) -> None:
    first, second, third = (TracedLock(name, graph) for name in NAMES)
    in_a_thread(lambda: take(first, second))
    in_a_thread(lambda: take(second, third))
    assert graph.problems == []
    in_a_thread(lambda: take(third, first))
    assert "inversion third -> first -> second -> third" in graph.problems[0]


def test_two_locks_of_one_name_inside_one_another_are_found(graph: LockGraph) -> None:
    take(TracedLock("first", graph), TracedLock("first", graph))
    assert "inversion first -> first" in graph.problems[0]


def test_a_lock_taken_against_the_written_order_is_found_at_its_first_time() -> None:
    graph = LockGraph({"first": 1, "second": 2})
    take(TracedLock("first", graph), TracedLock("second", graph))
    assert graph.problems == []
    take(TracedLock("second", graph), TracedLock("first", graph))
    assert any(
        "against the written order: second (2), then first (1)" in problem for problem in graph.problems
    )


def test_a_lock_that_the_written_order_lacks_is_found() -> None:
    graph = LockGraph({"first": 1})
    take(TracedLock("first", graph), TracedLock("second", graph))
    assert "second is not in the written order" in graph.problems[0]


def test_what_is_taken_without_waiting_or_again_by_its_holder_is_no_inversion(graph: LockGraph) -> None:
    first, second = TracedRLock("first", graph), TracedRLock("second", graph)
    take(first, second, first)
    with second:
        assert first.acquire(blocking=False)
        first.release()
    assert graph.problems == []


@pytest.fixture
def made(graph: LockGraph, tmp_path: Path) -> dict[str, threading.Condition]:
    """The locks that a module created at the lines that were read from its source."""
    source = "import threading\nclass Queue:\n    def __init__(self):\n        self._changed = threading.Condition()\n"
    path = tmp_path / "queue.py"
    path.write_text(source + "class Store:\n    lock = threading.Lock()\nhere = threading.RLock()\n")
    space: dict[str, type] = {}
    with traced_locks(lock_sites(tmp_path), graph):
        exec(compile(path.read_text(), str(path), "exec"), space)
        queue = space["Queue"]()
    return {"queue": queue._changed, "store": space["Store"].lock, "here": space["here"]}  # type: ignore[attr-defined]


def test_locks_get_their_names_from_where_they_are_made(
    made: dict[str, threading.Condition], graph: LockGraph
) -> None:
    with made["queue"], made["store"], made["here"]:
        pass
    pairs = {("Queue._changed", "Store.lock"), ("Queue._changed", "queue.here"), ("Store.lock", "queue.here")}
    assert set(graph.witnesses) == pairs


def test_a_condition_lets_go_of_its_lock_while_it_waits_and_takes_it_again_after(
    made: dict[str, threading.Condition], graph: LockGraph
) -> None:
    changed, store = made["queue"], made["store"]
    with store, changed:  # here the store is held, and still is when the wait ends
        changed.wait(0.01)
    assert set(graph.witnesses) == {("Store.lock", "Queue._changed")}
    with changed:
        changed.wait(0.01)
    take(store)  # type: ignore[arg-type]
    assert len(graph.witnesses) == 1
