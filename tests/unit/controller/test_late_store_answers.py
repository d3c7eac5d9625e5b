"""At whichever operation of a controller an answer is lost, late, or never comes: nothing of what happened is lost.

One history of a cluster, with everything that a controller does, is played once for each operation and each
fault. The session lives throughout, but where the history ends it, so nothing but the controllers themselves
brings them back.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import claim_controller, give_up_claim
from broker.zookeeper.store import ConnectionLossError
from tests.support.controllers_world import ControllersWorld
from tests.support.faulty_store import Fault, Faults

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def history(world: ControllersWorld, after_fault=lambda world: None) -> None:
    """Topics made, grown, moved and deleted, ISRs changed; brokers, a directory and a session lost."""
    struck = [False]

    def settle() -> None:
        if world.faults.met and not struck[0]:
            struck[0] = True
            after_fault(world)
        world.settle()

    store = world.observer
    store.create_topic("a", {0: (0, 1, 2), 1: (1, 2, 3)}, {})
    settle()
    store.create_topic("b", {0: (2, 3), 1: (3, 0)}, {})
    settle()
    assert len(world.states()) == 4
    world.alter_isr(A0, (0, 1))
    world.alter_isr(A0, (0, 1, 2))
    world.leave(3)
    settle()
    assert all(state.leader != 3 for state in world.states().values())
    world.join(3)
    settle()
    world.grow_isrs()
    b = store.topic_assignment("b")
    assert b is not None
    store.set_topic_assignment("b", replace(b, partitions={**b.partitions, 2: (1, 2)}))
    settle()
    assert len(world.states()) == 5
    world.move(A1, (0, 2, 3))
    store.create_log_dir_event(2)
    settle()
    assert store.log_dir_events() == {}
    store.mark_topic_for_deletion("b")
    settle()
    assert store.topics_to_delete() == []
    assert store.topics() == ["a"]
    world.active.session.expire()
    settle()
    (expired,) = [node for node in world.nodes if store.broker(node.broker_id) is None]
    world.register(expired)
    settle()
    world.shut_down(2)
    settle()


def check(world: ControllersWorld) -> None:
    """One controller; every partition led, and its leader told so; nothing half done; and all goes on."""
    claim = world.observer.controller_claim()
    assert claim is not None, "nobody is controller"
    active = world.active
    assert (claim.broker_id, claim.session_id) == (active.broker_id, active.session.session_id)
    live = world.observer.brokers().keys()
    assert live == {0, 1, 3}
    world.observer.create_topic("new", {0: (1, 3), 1: (3, 0)}, {})
    world.settle()
    world.alter_isr(TopicPartition("new", 0), (1,))
    for partition, state in world.states().items():
        assert state.leader in live, f"{partition} has no leader: {state}"
        told = world.brokers.leader_and_isr(state.leader, partition)
        assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch), partition
        for broker_id in live:
            known = world.brokers.metadata(broker_id, partition)
            assert known.leader == state.leader, f"broker {broker_id} of {partition}"


def play(faults: Faults, after_fault=lambda world: None) -> str:
    """What went wrong; nothing if all went well."""
    try:
        world = ControllersWorld(faults)
        history(world, after_fault)
        check(world)
    except Exception as error:
        return f"{faults.met}: {error!r}"
    return ""


def play_all(fault: Fault, after_fault=lambda world: None, length: int = 1) -> list[str]:
    """Whatever goes wrong with the fault at each operation in turn."""
    unharmed = Faults(0, fault)
    assert not play(unharmed)
    assert unharmed.count > 20
    faults = [Faults(nth, fault, length) for nth in range(1, unharmed.count + 1)]
    wrong = [told for each in faults if (told := play(each, after_fault))]
    assert all(each.met for each in faults)
    return wrong


@pytest.mark.parametrize("fault", Fault)
def test_an_answer_that_fails_at_any_operation_loses_nothing(fault: Fault) -> None:
    wrong = play_all(fault)
    assert not wrong, "\n".join(wrong)


def test_an_operation_done_after_another_took_the_office_changes_nothing() -> None:
    wrong = play_all(Fault.LATE, ControllersWorld.usurp)
    assert not wrong, "\n".join(wrong)


def test_answers_that_fail_one_after_the_other_lose_nothing() -> None:
    wrong = play_all(Fault.NOT_DONE, length=7)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("fault", Fault)
def test_who_is_no_longer_registered_leaves_the_office_whichever_answer_fails(fault: Fault) -> None:
    nth, met = 0, True
    while met:
        nth += 1
        world = ControllersWorld()
        mine = world.active
        (other,) = [node for node in world.nodes if node is not mine]
        faults = mine.session._faults = Faults(nth, fault)
        world.leave(mine.broker_id)
        met = bool(faults.met)
        assert world.observer.controller_id() == other.broker_id, faults.met
        assert world.active is other, faults.met
    assert nth > 1


def test_a_claim_given_up_late_is_not_the_next_controllers() -> None:
    world = ControllersWorld()
    mine = world.active
    (theirs,) = [node for node in world.nodes if node is not mine]
    mine.session._faults = Faults(1, Fault.LATE)
    with pytest.raises(ConnectionLossError):
        give_up_claim(ClusterStore(mine.session), mine.broker_id)
    world.embedded.delete(znodes.CONTROLLER)
    claim_controller(ClusterStore(theirs.session), theirs.broker_id)
    mine.session.do_late()
    assert world.observer.controller_id() == theirs.broker_id
