"""What a topic of many partitions costs the controller: a count that grows with them, not with their square."""

from __future__ import annotations

from broker.utils.topic_partition import TopicPartition
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
