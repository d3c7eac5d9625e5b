"""What a topic of many partitions costs the controller: a count that grows with them, not with their square."""

from __future__ import annotations

from dataclasses import replace

from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.embedded import EmbeddedStore
from tests.support.term_world import TermWorld


def hashes_to_create(monkeypatch, count: int) -> int:
    """How often a partition is looked up or put into a set while the controller makes ``count`` of them."""
    hashed = 0
    plain = tuple.__hash__

    def hash_(partition) -> int:
        nonlocal hashed
        hashed += 1
        return plain(partition)

    world = TermWorld({0: None})
    world.elect()
    with monkeypatch.context() as patched:
        patched.setattr(TopicPartition, "__hash__", hash_)
        world.create("t", dict.fromkeys(range(count), (0,)))
    assert all(world.state(TopicPartition("t", number)).leader == 0 for number in range(count))
    return hashed


def test_the_work_for_a_topic_grows_with_its_partitions(monkeypatch) -> None:
    few = hashes_to_create(monkeypatch, 50)
    assert few > 50, "counted"
    assert hashes_to_create(monkeypatch, 400) < 12 * few


def reads_after_a_new_connection(monkeypatch, topics: int, brokers: int) -> int:
    """How often the controller waits for the store when every watch counts as fired."""
    world = TermWorld(dict.fromkeys(range(brokers), None))
    world.elect()
    for number in range(topics):
        world.create(f"t{number}", {0: (0,)})
    reads = 0
    get_many = EmbeddedStore.get_many

    def counted(store, paths, *, small=False):
        nonlocal reads
        reads += 1
        return get_many(store, paths, small=small)

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedStore, "get_many", counted)
        for watches in list(world.store._watches.values()):
            for watch in list(watches):
                watch.fire()
        world.run()
    return reads


def test_with_a_new_connection_the_controller_reads_what_it_watches_together(monkeypatch) -> None:
    """Else a broker that died waits behind thousands of topics that have not changed."""
    few = reads_after_a_new_connection(monkeypatch, topics=2, brokers=2)
    assert few > 1, "counted"
    assert reads_after_a_new_connection(monkeypatch, topics=50, brokers=20) == few


def test_partitions_that_were_added_to_many_topics_at_once_get_leaders() -> None:
    world = TermWorld({0: None})
    world.elect()
    for topic in ("a", "b", "c"):
        world.create(topic, {0: (0,)})
    for topic in ("a", "c"):
        present = world.assignment(topic)
        world.cluster.set_topic_assignment(topic, replace(present, partitions={0: (0,), 1: (0,)}))
    world.run()
    assert [world.state(TopicPartition(topic, 1)).leader for topic in ("a", "c")] == [0, 0]
