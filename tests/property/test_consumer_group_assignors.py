"""The assignors of consumer groups: whole, balanced, sticky, co-partitioned, whatever the group."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.group.consumer.assignors import AssigneeSpec, assign_range, assign_uniform

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
MEMBERS = [f"m{number}" for number in range(6)]

counts = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
member_ids = st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True)
subscriptions = st.frozensets(st.sampled_from(TOPICS))
instance_ids = st.none() | st.sampled_from("ABC")


def alike(members, topics):
    return {member_id: AssigneeSpec(None, topics) for member_id in members}


@st.composite
def groups(draw):
    """Members with any subscriptions, and an assignment so far in which no partition occurs twice."""
    partitions = draw(counts)
    owners = {
        (topic, number): draw(st.none() | st.sampled_from(MEMBERS))
        for topic in TOPICS
        for number in range(partitions[topic] + 1)  # one of them is gone
    }
    members = {}
    for member_id in draw(member_ids):
        assigned = {
            topic: frozenset(n for (t, n), owner in owners.items() if t == topic and owner == member_id)
            for topic in TOPICS
        }
        members[member_id] = AssigneeSpec(draw(instance_ids), draw(subscriptions), assigned)
    return members, partitions


def held(assigned):
    return [(topic, number) for one in assigned.values() for topic in one for number in one[topic]]


def sizes(assigned):
    return [sum(map(len, one.values())) for one in assigned.values()]


def assert_whole(members, partitions, assigned):
    """Every partition that somebody subscribes to is assigned once, to a subscriber."""
    wanted = {
        (topic, number)
        for spec in members.values()
        for topic in spec.topics
        for number in range(partitions[topic])
    }
    assert sorted(held(assigned)) == sorted(wanted)
    assert assigned.keys() == members.keys()
    for member_id, one in assigned.items():
        assert one.keys() <= members[member_id].topics
        assert all(one.values()), "a topic without partitions has an entry"


@given(groups())
def test_every_partition_is_assigned_once_to_a_subscriber(group):
    members, partitions = group
    assert_whole(members, partitions, assign_uniform(members, partitions))
    assert_whole(members, partitions, assign_range(members, partitions))


@given(groups(), subscriptions)
def test_uniform_differs_by_at_most_one_where_all_subscribe_alike(group, topics):
    members = {member_id: spec._replace(topics=topics) for member_id, spec in group[0].items()}
    assigned = assign_uniform(members, group[1])
    assert max(sizes(assigned)) - min(sizes(assigned)) <= 1
    assert_whole(members, group[1], assigned)


@given(groups())
def test_no_single_move_improves_the_balance_of_uniform(group):
    members, partitions = group
    assigned = assign_uniform(members, partitions)
    load = {member_id: sum(map(len, one.values())) for member_id, one in assigned.items()}
    for member_id, one in assigned.items():
        for topic in one:
            for other, spec in members.items():
                assert topic not in spec.topics or load[other] + 1 >= load[member_id]


@given(groups())
def test_uniform_moves_nothing_if_nothing_has_changed(group):
    members, partitions = group
    before = assign_uniform(members, partitions)
    again = {member_id: spec._replace(assigned=before[member_id]) for member_id, spec in members.items()}
    assert assign_uniform(again, partitions) == before


@given(counts, st.lists(st.sampled_from(MEMBERS), min_size=2, unique=True), subscriptions)
def test_uniform_moves_only_to_a_member_that_has_come(partitions, member_ids, topics):
    first = assign_uniform(alike(member_ids[:-1], topics), partitions)
    members = {member_id: AssigneeSpec(None, topics, first.get(member_id, {})) for member_id in member_ids}
    second = assign_uniform(members, partitions)
    for member_id in member_ids[:-1]:
        assert set(held({member_id: second[member_id]})) <= set(held({member_id: first[member_id]}))


@given(counts, st.lists(st.sampled_from(MEMBERS), min_size=2, unique=True), subscriptions)
def test_uniform_moves_only_the_partitions_of_a_member_that_has_gone(partitions, member_ids, topics):
    first = assign_uniform(alike(member_ids, topics), partitions)
    members = {member_id: AssigneeSpec(None, topics, first[member_id]) for member_id in member_ids[:-1]}
    second = assign_uniform(members, partitions)
    for member_id in member_ids[:-1]:
        assert set(held({member_id: first[member_id]})) <= set(held({member_id: second[member_id]}))


@given(member_ids, st.integers(0, 9), subscriptions)
def test_range_gives_the_same_numbers_of_every_topic_of_the_same_size(member_ids, count, topics):
    assigned = assign_range(alike(member_ids, topics), dict.fromkeys(TOPICS, count))
    for one in assigned.values():
        assert len(set(one.values())) <= 1


@given(groups())
def test_range_gives_contiguous_ranges_of_sizes_that_differ_by_one(group):
    members, partitions = group
    assigned = assign_range(members, partitions)
    for topic in TOPICS:
        ranges = [one.get(topic, frozenset()) for i, one in assigned.items() if topic in members[i].topics]
        assert all(max(one) - min(one) + 1 == len(one) for one in ranges if one)
        assert not ranges or max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_range_puts_static_members_first_in_the_order_of_their_instance_ids():
    members = {
        "a": AssigneeSpec(None, frozenset(TOPICS[:1])),
        "b": AssigneeSpec("2", frozenset(TOPICS[:1])),
        "c": AssigneeSpec("1", frozenset(TOPICS[:1])),
    }
    assigned = assign_range(members, {TOPICS[0]: 4})
    assert [assigned[member_id][TOPICS[0]] for member_id in "cba"] == [{0, 1}, {2}, {3}]


def test_a_group_without_members_has_no_assignment():
    assert assign_uniform({}, {TOPICS[0]: 3}) == {}
    assert assign_range({}, {TOPICS[0]: 3}) == {}
