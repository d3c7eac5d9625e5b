"""Who may lead when nobody of the ISR lives: replicas that left it below min.insync.replicas and lost nothing since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.controller.eligible_replicas import (
    epochs_eligible,
    epochs_in_sync,
    led_though_eligible_could,
    who_is_whole,
)
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.znodes import (
    BrokerRegistration,
    LeaderAndIsr,
    LeaderRecoveryState,
    LiveBroker,
    MemberEpochs,
)
from tests.support.term_world import SETTINGS, TermWorld

T = TopicPartition("t", 0)
ON = replace(SETTINGS, eligible_replicas=True)
MIN_ISR = "min.insync.replicas"


def a_world(settings=ON, min_isr="2") -> TermWorld:
    """Broker 0 is the controller; 1, 2 and 3 have the partition, and 1 leads it."""
    made = TermWorld(dict.fromkeys(range(4), None), settings=settings)
    made.elect()
    made.create("t", {0: (1, 2, 3)}, **{MIN_ISR: min_isr})
    return made


@pytest.fixture
def world() -> TermWorld:
    return a_world()


def loses_its_session(world: TermWorld, broker_id: int) -> None:
    """The process lives on and registers again."""
    live = world.cluster.broker(broker_id)
    world.leave(broker_id)
    world.join(broker_id, first_epoch=live.whole_since)


def restarts(world: TermWorld, broker_id: int) -> None:
    world.leave(broker_id)
    world.join(broker_id)


def set_min_isr(world: TermWorld, value: str) -> None:
    world.cluster.set_entity_config("topics", "t", {MIN_ISR: value})


def led(world: TermWorld) -> tuple[int, tuple[int, ...]]:
    state = world.state(T)
    return state.leader, state.isr


def test_who_left_an_isr_that_became_too_small_leads_when_its_last_member_dies(world):
    world.alter_isr(T, (1,))
    world.leave(1)
    assert led(world) == (2, (2,))
    assert world.state(T).recovery_state is LeaderRecoveryState.RECOVERED
    assert world.brokers.leader_and_isr(3, T).leader == 2


def test_who_left_while_the_isr_was_large_enough_does_not(world):
    world.alter_isr(T, (1, 3))
    world.alter_isr(T, (1,))
    world.leave(1)
    assert led(world) == (3, (3,)), "2 may lack what was committed by 1 and 3"
    world.leave(3)
    assert led(world) == (-1, (3,))


def test_a_process_that_registers_anew_has_what_it_had(world):
    loses_its_session(world, 2)
    loses_its_session(world, 3)
    assert world.state(T).isr == (1,)
    world.leave(1)
    assert led(world) == (3, (3,))


@pytest.mark.parametrize("gone", ["before the last one dies", "after it"])
def test_a_broker_that_was_started_again_may_have_lost_something(world, gone):
    world.alter_isr(T, (1,))
    if gone == "after it":
        world.leave(2)
        world.leave(3)
        world.leave(1)
        world.join(2)
        world.join(3)
    else:
        restarts(world, 2)
        restarts(world, 3)
        world.leave(1)
    assert led(world) == (-1, (1,))


def test_whoever_comes_back_whole_leads_from_then_on(world):
    world.alter_isr(T, (1,))
    first = world.cluster.broker(2).epoch
    world.leave(2)
    world.leave(3)
    world.leave(1)
    assert led(world) == (-1, (1,))
    world.join(2, first_epoch=first)
    assert led(world) == (2, (2,))


def test_the_isr_comes_first(world):
    world.alter_isr(T, (1,))
    restarts(world, 1)
    assert led(world) == (2, (2,)), "while 1 was away"
    world.alter_isr(T, (2, 3))
    world.leave(2)
    assert led(world) == (3, (3,))


def test_an_isr_that_is_large_enough_again_makes_nobody_eligible(world):
    world.alter_isr(T, (1,))
    world.alter_isr(T, (1, 2))
    assert world.state(T).epochs.eligible == ()
    world.alter_isr(T, (1,))
    world.leave(1)
    assert led(world) == (2, (2,))
    world.leave(2)
    assert led(world) == (-1, (2,)), "3 left before records were committed by 1 and 2"


def test_it_is_known_to_the_next_controller(world):
    world.alter_isr(T, (1,))
    world.depose()
    world.leave(1)
    world.elect()
    assert led(world) == (2, (2,))


def test_a_restart_that_no_controller_saw_counts(world):
    """The next controller finds the broker in the ISR, alive: it may have lost the end of its log all the same."""
    world.depose()
    restarts(world, 2)
    world.elect()
    assert world.state(T).isr == (1, 2, 3)
    world.alter_isr(T, (1,))
    world.leave(1)
    assert led(world) == (3, (3,))


@pytest.mark.parametrize("value", ["1", "2", "3"])
def test_a_change_of_the_least_isr_ends_it_even_one_and_back(world, value):
    world.alter_isr(T, (1,))
    set_min_isr(world, value)
    set_min_isr(world, "2")
    world.leave(1)
    assert led(world) == (-1, (1,))


def test_who_was_eligible_before_a_change_does_not_become_so_again_when_the_state_is_written(world):
    """What was committed with the lower number is in the ISR alone."""
    world.alter_isr(T, (1,))
    set_min_isr(world, "1")
    set_min_isr(world, "2")
    world.leave(1)
    assert led(world) == (-1, (1,))
    assert not world.state(T).epochs.eligible
    loses_its_session(world, 2)
    loses_its_session(world, 3)
    world.elect()
    assert led(world) == (-1, (1,))


def test_a_change_of_the_clusters_default_ends_it_too():
    world = TermWorld(dict.fromkeys(range(4), None), settings=replace(ON, min_insync_replicas=2))
    world.elect()
    world.create("t", {0: (1, 2, 3)})
    world.alter_isr(T, (1,))
    assert world.state(T).epochs.eligible
    world.cluster.set_entity_config("brokers", "<default>", {MIN_ISR: "2"})
    world.leave(1)
    assert led(world) == (-1, (1,))


@pytest.mark.parametrize(
    ("settings", "min_isr"), [(SETTINGS, "2"), (ON, "1"), (ON, "rubbish")], ids=["off", "min 1", "rubbish"]
)
def test_without_it_or_where_one_is_enough_only_the_isr_leads(settings, min_isr):
    world = a_world(settings, min_isr)
    world.alter_isr(T, (1,))
    world.leave(1)
    assert led(world) == (-1, (1,))


def test_configs_that_cannot_be_read_hold_nobody_up(world):
    world.store.set(znodes.entity_config_path("topics/t"), b"rubbish")
    world.alter_isr(T, (1,))
    world.alter_isr(T, (1, 2))
    world.leave(1)
    assert led(world) == (2, (2,))


def test_turned_off_nothing_of_it_is_written():
    world = a_world(SETTINGS)
    world.alter_isr(T, (1,))
    data, _ = world.store.get(znodes.state_path(T))
    assert b"landline" not in data


def test_a_state_that_kafka_wrote_makes_nobody_eligible(world):
    world.depose()
    bare = replace(world.state(T), epochs=None)
    world.store.set(znodes.state_path(T), znodes.encode_state(bare))
    world.elect()
    world.alter_isr(T, (1,))
    world.leave(1)
    assert led(world) == (-1, (1,))


def test_a_replica_that_was_moved_away_and_back_has_nothing_of_it_any_more(world):
    world.alter_isr(T, (1, 3))
    assert world.ask_to_move({T: (1, 3)}) == {T: 0}
    world.alter_isr(T, (1,))
    assert world.ask_to_move({T: (1, 2, 3)}) == {T: 0}
    world.leave(1)
    assert led(world) == (3, (3,))
    world.leave(3)
    assert led(world)[0] == -1


def test_after_an_unclean_election_nobody_is_eligible(world):
    world.alter_isr(T, (1,))
    for broker_id in (2, 3):
        restarts(world, broker_id)
    world.leave(1)
    world.cluster.set_entity_config("topics", "t", {MIN_ISR: "2", "unclean.leader.election.enable": "true"})
    world.term.on_unclean_enabled("t")
    assert led(world) == (2, (2,))
    assert world.state(T).recovery_state is LeaderRecoveryState.RECOVERING
    assert world.state(T).epochs.eligible == ()


# -- the rules themselves


def state(leader: int, isr: tuple[int, ...], in_sync=None, eligible=None) -> LeaderAndIsr:
    epochs = None
    if in_sync is not None:
        epochs = MemberEpochs(tuple(in_sync.items()), tuple((eligible or {}).items()))
    return LeaderAndIsr(leader, 3, isr, 1, epochs=epochs)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (None, state(1, (1, 2)), {1: 10, 2: 20}),
        (state(1, (1, 2), {1: 5, 2: 6}), state(1, (1, 2, 3)), {1: 5, 2: 6, 3: 30}),
        (state(1, (1, 2)), state(1, (1, 2)), {}),  # who is in it already may have restarted unseen
        (
            state(1, (1, 2), {1: 5, 2: 6}),
            state(2, (1, 2)),
            {1: 5, 2: 20},
        ),  # the new leader's log is the truth
        (state(1, (1,), {1: 5}), state(-1, (1,)), {1: 5}),
        (state(-1, (4,), {4: 5}), state(4, (4,)), {}),  # not alive after all
    ],
)
def test_members_keep_the_epoch_they_came_in_with(before, after, found):
    assert epochs_in_sync(before, after, {1: 10, 2: 20, 3: 30}) == found


def test_eligible_are_those_of_before_that_are_still_replicas():
    before = state(1, (1, 2), {1: 5, 2: 6}, {3: 7, 4: 8})
    assert epochs_eligible(before, state(1, (1,)), (1, 2, 3), "") == {2: 6, 3: 7}
    assert epochs_eligible(before, state(1, (1,)), (1, 2, 3), "-/17.3") == {2: 6}, "of the ISR alone"


def live(broker_id: int, epoch: int, first_epoch: int | None = None) -> LiveBroker:
    return LiveBroker(BrokerRegistration(broker_id, (), first_epoch=first_epoch), epoch)


def test_whole_is_who_lives_since_then():
    brokers = {1: live(1, 10), 2: live(2, 20), 3: live(3, 30, 7)}
    assert who_is_whole({1: 10, 2: 19, 3: 8, 4: 1}, brokers) == [1, 3]


@pytest.mark.parametrize(
    ("present", "waits"),
    [
        (state(1, (1,), {}, {2: 20}), True),
        (state(-1, (1,), {}, {2: 20}), True),
        (state(1, (1,), {}, {2: 19}), False),
        (state(1, (1,), {}, {3: 30}), True),  # it may have lost its session alone, and be back in a moment
        (state(1, (1,), {}, {2: 19, 3: 30}), True),
        (state(1, (1,), {}, {1: 10}), False),  # we are no other
        (state(3, (3,), {}, {2: 20}), False),
        (state(1, (1,)), False),
    ],
)
def test_a_leader_that_crashed_waits_for_an_eligible_one_to_take_over(present, waits):
    brokers = {1: live(1, 10), 2: live(2, 20)}
    assert bool(led_though_eligible_could(1, {T: present}, brokers)) is waits


def test_the_epochs_are_read_as_they_were_written():
    written = state(1, (1, 2), {1: 5, 2: 6}, {3: 7})
    written = replace(written, epochs=replace(written.epochs, configs="-/17.3"), partition_epoch=4)
    assert znodes.decode_state(T, znodes.encode_state(written), 4) == written
    broker = BrokerRegistration(3, (), first_epoch=99)
    assert znodes.decode_broker(3, znodes.encode_broker(broker)) == broker


@pytest.mark.parametrize(
    "epochs", ["5", '{"in_sync":{}}', '{"in_sync":{"a":1},"eligible":{},"configs":""}', "[1]"]
)
def test_epochs_that_make_no_sense_are_told_with_their_path(epochs):
    data = znodes.encode_state(state(1, (1,))).replace(b"}", b',"landline_epochs":' + epochs.encode() + b"}")
    with pytest.raises(znodes.BadZnodeError, match="/brokers/topics/t/partitions/0/state"):
        znodes.decode_state(T, data, 0)
