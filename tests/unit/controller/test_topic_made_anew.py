"""The mark by which a topic is deleted goes with that topic, and never concerns the next one of its name."""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.config.broker_config import BrokerConfig
from broker.controller.topic_admin import TopicAdmin
from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import StoreError
from tests.support.term_world import TermWorld

RACKS = {0: None, 1: None}


@pytest.fixture
def world() -> TermWorld:
    return TermWorld(RACKS)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("deadly", range(1, 5))
def test_a_topic_made_while_the_controller_of_the_old_ones_deletion_is_gone_stays(
    world: TermWorld, deadly: int, after: bool
) -> None:
    world.create("t", dict.fromkeys(range(3), (0, 1)))
    world.elect()
    world.cluster.mark_topic_for_deletion("t")
    with suppress(StoreError):
        world.elect(deadly, after=after)
    if world.cluster.topic_exists("t"):
        return
    topic_id = world.cluster.create_topic("t", {0: (0, 1)}, {"retention.ms": "1000"})
    world.elect()
    made = world.cluster.topic_assignment("t")
    assert made is not None
    assert made.topic_id == topic_id
    assert world.cluster.topic_configs("t") == {"retention.ms": "1000"}


class SlowLook(ClusterStore):
    """The topic goes after it was looked for and before anything is written."""

    def topic_exists(self, topic: str) -> bool:
        found = super().topic_exists(topic)
        self.store.delete(f"/brokers/topics/{topic}")
        return found


def test_a_deletion_asked_for_twice_leaves_no_mark_for_the_next_topic(world: TermWorld) -> None:
    world.create("t", {0: (0, 1)})
    config = BrokerConfig.from_properties({"broker.id": "0", "zookeeper.connect": "z:2181"})
    admin = TopicAdmin(config, SlowLook(world.store))
    with pytest.raises(KafkaError) as refused:
        admin.delete_topic("t")
    assert refused.value.error_code is Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert world.cluster.topics_to_delete() == []
