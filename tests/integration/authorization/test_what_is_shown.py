"""What an answer shows to a principal: only what its ACLs let it describe, read or write."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.security.acls import CLUSTER_NAME, PatternType
from rig.raw_client import RawClient
from tests.support.guarded_broker import (
    CLUSTER,
    GROUP,
    NEW_TOPIC,
    TOPIC,
    Op,
    granted,
    topic_named,
)
from tests.support.valid_requests import World, fields, some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
NOT_ASKED = -(1 << 31)


def test_a_prefixed_acl_permits_names_that_begin_so_and_no_others(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    with granted(admin, [(TOPIC, "to", Op.WRITE)], PatternType.PREFIXED):
        assert guest.produce(world.topic, 0, some_records()).error_code == Errors.NONE
        denied = guest.produce("tea", 0, some_records())
        assert denied.error_code == Errors.TOPIC_AUTHORIZATION_FAILED


def test_one_produce_writes_what_it_may_and_is_refused_the_rest(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    data = [{"index": 0, "records": some_records()}]
    body = {"acks": -1, "timeout": 10_000, "topic_data": [
        {"name": "secret", "partition_data": data}, {"name": world.topic, "partition_data": data},
    ]}  # fmt: skip
    with granted(admin, [(TOPIC, world.topic, Op.WRITE)]):
        answer = guest.ask(ApiKey.PRODUCE, 9, body)
    found = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert found == {"secret": Errors.TOPIC_AUTHORIZATION_FAILED, world.topic: Errors.NONE}


def test_a_denied_produce_without_acknowledgement_ends_the_connection(guest: RawClient, world: World) -> None:
    body = {**fields(ApiKey.PRODUCE, 9, world), "acks": 0}
    with pytest.raises((ConnectionError, EOFError)):
        guest.ask(ApiKey.PRODUCE, 9, body)


def all_topics(client: RawClient, version: int = 12, **more: Any) -> Any:
    asked = {"topics": None, "allow_auto_topic_creation": False}
    operations = {
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return client.ask(ApiKey.METADATA, version, {**asked, **operations, **more})


def test_all_topics_are_those_that_a_principal_may_describe_whatever_others_saw_before(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    seen = {topic.name for topic in all_topics(admin).topics}
    assert world.topic in seen
    assert len(seen) > 1
    assert all_topics(guest).topics == ()
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        assert [topic.name for topic in all_topics(guest).topics] == [world.topic]
        assert {topic.name for topic in all_topics(admin).topics} == seen
    assert all_topics(guest).topics == ()


def test_a_topic_that_may_not_be_described_looks_like_one_that_is_not_there(
    guest: RawClient, world: World
) -> None:
    rows = [
        guest.ask(ApiKey.METADATA, 12, {**fields(ApiKey.METADATA, 12, world), **topic_named(name)}).topics[0]
        for name in (world.topic, "never-made")
    ]
    assert [dataclasses.replace(row, name=None) for row in rows] == [
        dataclasses.replace(rows[0], name=None)
    ] * 2


def test_authorized_operations_are_those_of_the_principal(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    (row,) = [topic for topic in all_topics(admin, 10, **asked).topics if topic.name == world.topic]
    assert row.topic_authorized_operations == sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        answer = all_topics(guest, 10, **asked)
        assert answer.cluster_authorized_operations == 0
        assert answer.topics[0].topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
        assert all_topics(guest, 10).topics[0].topic_authorized_operations == NOT_ASKED
    cluster = {"include_cluster_authorized_operations": True}
    everything = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
    answer = admin.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster)
    assert answer.cluster_authorized_operations == everything
    assert guest.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster).cluster_authorized_operations == 0
    with granted(admin, [(CLUSTER, CLUSTER_NAME, Op.DESCRIBE)]):
        answer = guest.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster)
        assert answer.cluster_authorized_operations == 1 << Op.DESCRIBE
    described = {"groups": [world.group], "include_authorized_operations": True}
    with granted(admin, [(GROUP, world.group, Op.DESCRIBE)]):
        (group,) = guest.ask(ApiKey.DESCRIBE_GROUPS, 5, described).groups
        assert group.authorized_operations == 1 << Op.DESCRIBE


def test_groups_are_listed_to_whom_may_describe_them_or_the_cluster(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    def listed() -> list[str]:
        answer = guest.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        assert answer.error_code == Errors.NONE
        return [row.group_id for row in answer.groups]

    assert listed() == []
    for acl in ((GROUP, world.group, Op.READ), (CLUSTER, CLUSTER_NAME, Op.DESCRIBE)):
        with granted(admin, [acl]):
            assert world.group in listed()


def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    asked = {"groups": [{"group_id": world.group, "topics": None}], "require_stable": False}

    def topics() -> list[str]:
        (group,) = guest.ask(ApiKey.OFFSET_FETCH, 8, asked).groups
        assert group.error_code == Errors.NONE
        return [topic.name for topic in group.topics]

    with granted(admin, [(GROUP, world.group, Op.DESCRIBE)]):
        assert topics() == []
    with granted(admin, [(GROUP, world.group, Op.DESCRIBE), (TOPIC, world.topic, Op.DESCRIBE)]):
        assert topics() == [world.topic]


def test_a_topic_is_deleted_by_its_id_and_its_name_told_only_to_whom_may_describe_it(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    made = admin.create_topic("to-delete")
    asked = {"topics": [{"name": None, "topic_id": made.topic_id}], "timeout": 10_000}
    (row,) = guest.ask(ApiKey.DELETE_TOPICS, 6, asked).responses
    assert (row.name, row.error_code) == (None, Errors.TOPIC_AUTHORIZATION_FAILED)
    with granted(admin, [(TOPIC, "to-delete", Op.DESCRIBE)]):
        (row,) = guest.ask(ApiKey.DELETE_TOPICS, 6, asked).responses
        assert (row.name, row.error_code) == ("to-delete", Errors.TOPIC_AUTHORIZATION_FAILED)
    with granted(admin, [(TOPIC, "to-delete", Op.DELETE)]):
        (row,) = guest.ask(ApiKey.DELETE_TOPICS, 6, asked).responses
        assert (row.name, row.error_code) == ("to-delete", Errors.NONE)


def test_a_topic_that_may_not_be_altered_does_not_tell_its_partitions_by_what_is_too_many(
    guest: RawClient, world: World
) -> None:
    for name in (world.topic, "not-there"):
        row = {"name": name, "count": 10_001, "assignments": None}
        asked = {"topics": [row], "timeout": 1_000, "validate_only": True}
        (result,) = guest.ask(ApiKey.CREATE_PARTITIONS, 3, asked).results
        assert result.error_code == Errors.TOPIC_AUTHORIZATION_FAILED


def test_the_configs_of_a_created_topic_are_told_to_whom_may_describe_them(
    admin: RawClient, guest: RawClient
) -> None:
    asked = {"topics": [{"name": "quiet", **NEW_TOPIC}], "timeout": 10_000, "validate_only": True}
    with granted(admin, [(TOPIC, "quiet", Op.CREATE)]):
        (row,) = guest.ask(ApiKey.CREATE_TOPICS, 7, asked).topics
    assert (row.error_code, row.topic_config_error_code) == (Errors.NONE, Errors.TOPIC_AUTHORIZATION_FAILED)
    assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, ())


def test_a_regular_expression_follows_the_acls_with_the_next_heartbeat(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    """Members of consumer groups (KIP-848) get the topics that their expressions match and they may describe."""
    group = "by-expression"
    body = {
        **fields(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, world),
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": f"{world.topic[:2]}.*",
        "topic_partitions": [],
    }

    def beat(epoch: int, **more: Any) -> tuple[int, list[Any] | None]:
        answer = guest.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**body, **more, "member_epoch": epoch})
        assert answer.error_code == Errors.NONE, answer
        told = answer.assignment
        return answer.member_epoch, None if told is None else [one.topic_id for one in told.topic_partitions]

    unchanged = {"rebalance_timeout": -1, "subscribed_topic_regex": None, "topic_partitions": None}
    owned = [{"topic_id": world.topic_id, "partitions": [0]}]
    read, describe = (GROUP, group, Op.READ), (TOPIC, world.topic, Op.DESCRIBE)
    with granted(admin, [read]):
        assert beat(0) == (1, [])
    with granted(admin, [read, describe]):
        assert beat(1, **unchanged) == (2, [world.topic_id])
        assert beat(2, **unchanged) == (2, None)
    with granted(admin, [read]):
        assert beat(2, **{**unchanged, "topic_partitions": owned}) == (2, []), "it must revoke"
        assert beat(2, **{**unchanged, "topic_partitions": []}) == (3, None)
