"""A broker that heard nothing while topics went knows them no more when it is told everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import MetadataUpdate
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from tests.support.term_world import SETTINGS, TermWorld

AWAY = 3
LISTENER = SETTINGS.inter_broker_listener


class Knowing(TermWorld):
    """A world in which one broker's process goes on without a session, with what it knows."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(range(AWAY + 1), None))
        self.cache = MetadataCache(LISTENER)
        self.deleted: list[TopicPartition] = []
        self.elect()
        self.create("kept", {0: (1, 2)})
        self.create("t", dict.fromkeys(range(4), (1, 2)))
        self.listen()
        assert self.cache.partition_count("t") == 4

    def listen(self) -> None:
        """The broker takes up what it was told since the last time."""
        for request in self.brokers.requests(ApiKey.UPDATE_METADATA, AWAY):
            self.deleted += self.cache.update(MetadataUpdate.of(request.message, LISTENER))
        self.brokers.clear()

    def delete(self, topic: str) -> None:
        self.cluster.mark_topic_for_deletion(topic)
        self.run()
        assert not self.cluster.topic_exists(topic)


@pytest.fixture
def world() -> Knowing:
    return Knowing()


def while_its_session_is_gone(world: Knowing, act: Callable[[], None]) -> None:
    world.leave(AWAY)
    act()
    world.brokers.clear()
    world.join(AWAY)
    world.listen()


def before_the_next_controller(world: Knowing, act: Callable[[], None]) -> None:
    act()
    world.brokers.clear()  # what was still on its way to the broker
    world.elect()
    world.listen()


MISSED = [while_its_session_is_gone, before_the_next_controller]


@pytest.mark.parametrize("miss", MISSED)
def test_a_topic_that_went_meanwhile_is_not_known_any_more(world: Knowing, miss: Callable[..., None]) -> None:
    miss(world, lambda: world.delete("t"))
    assert world.cache.topic_names() == ["kept"]
    assert world.cache.topic_id("t") is None
    assert world.deleted == [TopicPartition("t", number) for number in range(4)]


@pytest.mark.parametrize("miss", MISSED)
def test_of_a_topic_made_anew_meanwhile_no_old_partition_is_known(
    world: Knowing, miss: Callable[..., None]
) -> None:
    def make_anew() -> None:
        world.delete("t")
        world.create("t", {0: (1, 2)})

    miss(world, make_anew)
    assert world.cache.partition_count("t") == 1
    assert world.cache.topic_id("t") == world.assignment("t").topic_id
    assert world.deleted == [TopicPartition("t", number) for number in range(4)]


@pytest.mark.parametrize("path", [znodes.topic_path("t"), znodes.state_path(TopicPartition("t", 3))])
def test_what_the_controller_cannot_read_stays_known(world: Knowing, path: str) -> None:
    data = world.store.get(path)[0]
    world.store.set(path, b"spoilt")
    world.elect()
    world.listen()
    assert world.cache.partition_count("t") == 4
    world.store.set(path, data)
    assert world.deleted == []
