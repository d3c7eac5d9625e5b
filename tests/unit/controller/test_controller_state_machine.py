"""The state tables are those of the diagrams, and every state can be reached and left."""

from __future__ import annotations

import itertools

import pytest

from broker.controller.context import ControllerContext
from broker.controller.rules import states
from broker.controller.rules.states import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    PartitionState,
    Replica,
    ReplicaState,
    StateChangeFailed,
    check_partition,
    check_replica,
)
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import TopicAssignment

T0 = TopicPartition("t", 0)
# Kafka's documented transitions, target: sources.
PARTITIONS = {
    "NEW": {"NON_EXISTENT"},
    "ONLINE": {"NEW", "ONLINE", "OFFLINE"},
    "OFFLINE": {"NEW", "ONLINE", "OFFLINE"},
    "NON_EXISTENT": {"OFFLINE"},
}
REPLICAS = {
    "NEW": {"NON_EXISTENT"},
    "ONLINE": {"NEW", "ONLINE", "OFFLINE", "DELETION_INELIGIBLE"},
    "OFFLINE": {"NEW", "ONLINE", "OFFLINE", "DELETION_INELIGIBLE"},
    "DELETION_STARTED": {"OFFLINE"},
    "DELETION_SUCCESSFUL": {"DELETION_STARTED"},
    "DELETION_INELIGIBLE": {"OFFLINE", "DELETION_STARTED"},
    "NON_EXISTENT": {"DELETION_SUCCESSFUL"},
}


@pytest.mark.parametrize(("before", "after"), [*itertools.product(PartitionState, PartitionState)])
def test_partition_states_follow_the_diagram(before, after):
    if before.name in PARTITIONS[after.name]:
        check_partition(T0, before, after)
    else:
        with pytest.raises(StateChangeFailed, match=f"t-0 is {before.value} and cannot become {after.value}"):
            check_partition(T0, before, after)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(ReplicaState, ReplicaState)])
def test_replica_states_follow_the_diagram(before, after):
    if before.name in REPLICAS[after.name]:
        check_replica(Replica(T0, 1), before, after)
    else:
        with pytest.raises(StateChangeFailed, match="replica of t-0 on broker 1"):
            check_replica(Replica(T0, 1), before, after)


@pytest.mark.parametrize("table", [PARTITION_PREDECESSORS, REPLICA_PREDECESSORS])
def test_from_every_state_a_topic_can_still_be_deleted(table):
    end = next(state for state in table if state.name == "NON_EXISTENT")
    reaching = {end}
    for _ in table:
        reaching |= {before for after in reaching for before in table[after]}
    assert reaching == set(table)


def test_the_diagram_in_the_module_names_every_state():
    for state in (*PartitionState, *ReplicaState):
        assert state.name in states.__doc__


def test_a_removed_topic_leaves_nothing_in_the_context():
    context = ControllerContext(1)
    context.put_topic("t", TopicAssignment({0: (1, 2)}, None))
    context.move_partition(T0, PartitionState.NEW)
    context.move_replica(Replica(T0, 1), ReplicaState.NEW)
    context.failed_dirs[1] = {T0}
    context.remove_topic("t")
    left = [context.topics, context.partition_states, context.replica_states, context.failed_dirs[1]]
    assert not any(left)
    assert context.replicas(T0) == ()


def test_put_topic_names_only_the_partitions_that_are_new():
    context = ControllerContext(1)
    assert context.put_topic("t", TopicAssignment({0: (1,)}, None)) == [T0]
    context.move_partition(T0, PartitionState.NEW)
    assert context.put_topic("t", TopicAssignment({0: (1,), 1: (2,)}, None)) == [TopicPartition("t", 1)]
