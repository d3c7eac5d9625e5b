"""What a term tells brokers that do not take it, of topics on their way out, and of those that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from broker.config.endpoint import Endpoint
from broker.controller.controlled_shutdown import controlled_shutdown
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from tests.support.fake_brokers import answer_leader_and_isr, answer_stop_replica
from tests.support.term_world import TermWorld

T0 = TopicPartition("t", 0)
LATE = 3
KNOWING = {
    ApiKey.LEADER_AND_ISR: answer_leader_and_isr,
    ApiKey.STOP_REPLICA: answer_stop_replica,
    ApiKey.UPDATE_METADATA: lambda _message: {"error_code": 0},
}
# Of its own registration it does not know yet, or not of this controller's.
REFUSALS = (Errors.STALE_BROKER_EPOCH, Errors.CLUSTER_AUTHORIZATION_FAILED)


@pytest.fixture
def world() -> TermWorld:
    made = TermWorld(dict.fromkeys(range(LATE), None))
    made.elect()
    return made


def refuse_late_ones(world: TermWorld, error: Errors = Errors.STALE_BROKER_EPOCH) -> None:
    """Brokers that register from now on do not know it, and refuse everything."""
    empty = {
        ApiKey.LEADER_AND_ISR: {"topics": [], "partition_errors": []},
        ApiKey.STOP_REPLICA: {"partition_errors": []},
    }
    known = max(broker.epoch for broker in world.cluster.brokers().values())

    def refusing(api: ApiKey) -> Any:
        def answer(message: Any) -> Mapping[str, Any]:
            if message.broker_epoch > known:
                return {"error_code": error, **empty.get(api, {})}
            return KNOWING[api](message)

        return answer

    world.brokers.answers = {api: refusing(api) for api in KNOWING}


def told(world: TermWorld, api: ApiKey) -> int:
    return len(world.brokers.requests(api, LATE))


@pytest.mark.parametrize("error", REFUSALS)
def test_a_broker_that_learns_of_a_registration_late_is_told_again_until_it_takes_it(
    world: TermWorld, error: Errors
) -> None:
    world.create("t", {0: (LATE, 1)})
    refuse_late_ones(world, error)
    world.join(LATE)
    assert told(world, ApiKey.LEADER_AND_ISR) == 1
    for times in (2, 3):
        world.events.run_later(("tell_again", LATE))
        assert told(world, ApiKey.LEADER_AND_ISR) == times
    world.brokers.answers = {}
    world.events.run_later(("tell_again", LATE))
    assert told(world, ApiKey.LEADER_AND_ISR) == 4
    world.events.run_later(("tell_again", LATE))
    assert told(world, ApiKey.LEADER_AND_ISR) == 4
    assert world.brokers.leader_and_isr(LATE, T0).leader == world.state(T0).leader
    assert world.brokers.metadata(LATE, T0).leader == world.state(T0).leader


def test_a_broker_that_has_registered_anew_is_not_told_again(world: TermWorld) -> None:
    world.create("t", {0: (LATE, 1)})
    refuse_late_ones(world)
    world.join(LATE)
    world.leave(LATE)
    world.brokers.answers = {}
    world.join(LATE)
    before = told(world, ApiKey.UPDATE_METADATA)
    world.events.run_later(("tell_again", LATE))
    assert told(world, ApiKey.UPDATE_METADATA) == before


def test_a_refused_deletion_is_ordered_again(world: TermWorld) -> None:
    world.create("t", {0: (1, LATE)})
    refuse_late_ones(world)
    world.join(LATE)
    world.cluster.mark_topic_for_deletion("t")
    world.run()
    assert world.cluster.topic_exists("t")
    world.brokers.answers = {}
    world.events.run_later(("tell_again", LATE))
    assert not world.cluster.topic_exists("t")
    assert world.cluster.topics_to_delete() == []


def test_a_topic_that_is_to_go_is_not_brought_online_by_the_next_controller(world: TermWorld) -> None:
    world.create("t", {0: (1, 2)})
    world.depose()
    world.cluster.mark_topic_for_deletion("t")
    world.brokers.clear()
    world.elect()
    assert world.brokers.requests(ApiKey.LEADER_AND_ISR) == []
    shown = [
        row.leader
        for request in world.brokers.requests(ApiKey.UPDATE_METADATA)
        for topic in request.message.topic_states
        for row in topic.partition_states
    ]
    assert set(shown) == {-2}
    assert not world.cluster.topic_exists("t")


def test_a_topic_removed_by_hand_is_forgotten_and_can_be_made_anew(world: TermWorld) -> None:
    world.create("t", {0: (1, 2)})
    for path in (
        znodes.state_path(T0),
        znodes.partition_path(T0),
        znodes.partitions_path("t"),
        znodes.topic_path("t"),
    ):
        world.store.delete(path)
    world.run()
    assert world.term is not None
    assert list(world.term.context.partitions()) == []
    world.create("t", {0: (2, 0)})
    assert world.state(T0).leader == 2
    assert world.brokers.leader_and_isr(2, T0).is_new


def test_brokers_hear_that_one_is_gone_before_its_partitions_have_leaders(world: TermWorld) -> None:
    """Else clients try the dead one, and ask again at intervals that grow."""
    world.create("t", {0: (1, 2)})
    world.brokers.clear()
    world.leave(1)
    first = world.brokers.requests(broker_id=2)[0]
    assert first.api is ApiKey.UPDATE_METADATA
    assert [broker.id_ for broker in first.message.live_brokers] == [0, 2]
    assert not first.message.topic_states
    assert world.brokers.metadata(2, T0).leader == 2


def test_a_broker_of_a_later_life_than_is_known_may_stop_and_one_of_an_earlier_may_not(
    world: TermWorld,
) -> None:
    assert world.term is not None
    known = world.cluster.brokers()[1].epoch
    with pytest.raises(KafkaError) as refused:
        controlled_shutdown(world.term, 1, known - 1)
    assert refused.value.error_code is Errors.STALE_BROKER_EPOCH
    assert controlled_shutdown(world.term, 1, known + 1) == []


class UnreachedAddress:
    """A manager with ChannelManager's interface. What it sends to a broker waits, and goes with the address."""

    def __init__(self, channels: Any, broker_id: int) -> None:
        self._channels = channels
        self._unreached = {broker_id}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channels, name)

    def remove(self, broker_id: int) -> None:
        self._unreached.discard(broker_id)
        self._channels.remove(broker_id)

    def send(self, broker_id: int, *request: Any) -> None:
        if broker_id not in self._unreached:
            self._channels.send(broker_id, *request)


def move_to_another_address(world: TermWorld, broker_id: int) -> None:
    live = world.cluster.broker(broker_id)
    assert live is not None
    endpoint = Endpoint("elsewhere", 1, "PLAINTEXT")
    world.cluster.update_broker(replace(live.registration, endpoints=(endpoint,)))
    world.run()


def test_what_a_broker_was_not_told_at_its_old_address_it_is_told_at_the_new_one(world: TermWorld) -> None:
    world.create("t", {0: (1, 2)})
    term = world.term
    assert term is not None
    term._channels = term.batch._channels = UnreachedAddress(term._channels, 2)  # type: ignore[assignment]
    world.leave(1)
    assert world.state(T0).leader == 2
    assert world.brokers.leader_and_isr(2, T0).leader == 1
    move_to_another_address(world, 2)
    assert world.brokers.leader_and_isr(2, T0).leader == 2


def test_a_deletion_that_was_ordered_at_an_old_address_is_ordered_again(world: TermWorld) -> None:
    world.create("t", {0: (1, 2)})
    term = world.term
    assert term is not None
    term._channels = term.batch._channels = UnreachedAddress(term._channels, 2)  # type: ignore[assignment]
    world.cluster.mark_topic_for_deletion("t")
    world.run()
    assert world.cluster.topic_exists("t")
    move_to_another_address(world, 2)
    assert not world.cluster.topic_exists("t")
