"""The group APIs on the wire: each version decoded, served by a real coordinator, and encoded again."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.control_messages import BrokerInfo, MetadataUpdate, PartitionInfo
from broker.protocol.epochs import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from broker.protocol.errors import Errors, KafkaError
from broker.server.apis import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    inter_broker,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition
from tests.support import valid_requests
from tests.support.api_talk import ApiTalk
from tests.support.group_fakes import Harness
from tests.support.valid_requests import World

MODULES = {
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.OFFSET_DELETE: offset_delete,
}


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


class Context(ApiTalk):
    """Of ApiContext what the group APIs use, with the real coordinator and metadata cache."""

    def __init__(self, **config: object) -> None:
        self.harness = Harness(**config)
        self.group_coordinator = self.harness.coordinator
        self.clock = self.harness.clock
        self.broker_epoch = lambda: 1
        self.leadership = SimpleNamespace(obeying=lambda _controller_epoch: nullcontext())
        of_controller = SimpleNamespace(handle=inter_broker.update_metadata)
        super().__init__({**MODULES, ApiKey.UPDATE_METADATA: of_controller}, self.harness.config)

    def join(self, version: int, member_id: str = "", **fields: Any) -> Any:
        """Joins until there is a generation, coming back with the member id where that is asked."""
        request = {
            "group_id": "g1",
            "session_timeout": 10_000,
            "rebalance_timeout": 30_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"meta"}],
            **fields,
        }
        answers = self.ask(ApiKey.JOIN_GROUP, version, **request)
        if answers and answers[0].error_code == Errors.MEMBER_ID_REQUIRED:
            answers = self.ask(ApiKey.JOIN_GROUP, version, **{**request, "member_id": answers[0].member_id})
        self.harness.advance(3_000)
        (answer,) = answers
        return answer

    def stable(self) -> Any:
        joined = self.join(9)
        assignments = [{"member_id": joined.member_id, "assignment": b"part"}]
        self.answer(
            ApiKey.SYNC_GROUP,
            5,
            group_id="g1",
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        return joined


@pytest.fixture
def ctx() -> Context:
    return Context()


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group_gives_a_generation_in_every_version(ctx, version):
    joined = ctx.join(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (Errors.NONE, 1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.members[0].metadata == b"meta"
    (member,) = ctx.group_coordinator.describe("g1").members
    assert (member.client_id, member.client_host) == ("tester", "/10.0.0.9")


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group_asks_dynamic_members_back_from_version_4_on(ctx, version):
    fields = {"group_id": "g1", "session_timeout": 10_000, "member_id": "", "protocol_type": "consumer"}
    answers = ctx.ask(
        ApiKey.JOIN_GROUP,
        version,
        **fields,
        protocols=[{"name": "range", "metadata": b""}],
        rebalance_timeout=30_000,
    )
    if version < 4:
        assert answers == []
    else:
        assert answers[0].error_code == Errors.MEMBER_ID_REQUIRED
        assert answers[0].member_id.startswith("tester-")


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group_refusal_fits_every_version(ctx, version):
    refused = ctx.join(version, session_timeout=1)
    assert (refused.error_code, refused.generation_id, refused.leader) == (
        Errors.INVALID_SESSION_TIMEOUT,
        -1,
        "",
    )
    assert refused.protocol_name == (None if version >= 7 else "")


def test_join_group_version_0_takes_the_session_timeout_for_both(ctx):
    ctx.join(0)
    group = ctx.group_coordinator._registry.find("g1").group
    assert group.rebalance_timeout_ms == 10_000


def test_static_member_is_not_asked_back(ctx):
    joined = ctx.join(5, group_instance_id="i1")
    assert joined.members[0].group_instance_id == "i1"


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_group_gives_the_assignment_in_every_version(ctx, version):
    joined = ctx.join(9)
    synced = ctx.answer(
        ApiKey.SYNC_GROUP,
        version,
        group_id="g1",
        generation_id=1,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": b"part"}],
    )
    assert (synced.error_code, synced.assignment) == (Errors.NONE, b"part")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


def test_sync_group_without_a_protocol_is_inconsistent_from_version_5_on(ctx):
    joined = ctx.join(9)
    fields = {"group_id": "g1", "generation_id": 1, "member_id": joined.member_id, "assignments": []}
    assert ctx.answer(ApiKey.SYNC_GROUP, 5, **fields).error_code == Errors.INCONSISTENT_GROUP_PROTOCOL
    assert ctx.answer(ApiKey.SYNC_GROUP, 4, **fields).error_code == Errors.NONE


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat_is_answered_at_once_in_every_version(ctx, version):
    joined = ctx.stable()
    fields = {"group_id": "g1", "generation_id": 1}
    assert (
        ctx.answer(ApiKey.HEARTBEAT, version, member_id=joined.member_id, **fields).error_code == Errors.NONE
    )
    assert (
        ctx.answer(ApiKey.HEARTBEAT, version, member_id="x", **fields).error_code == Errors.UNKNOWN_MEMBER_ID
    )


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group_in_every_version(ctx, version):
    joined = ctx.stable()
    members = [{"member_id": joined.member_id}, {"member_id": "x"}]
    first = ctx.answer(
        ApiKey.LEAVE_GROUP, version, group_id="g1", member_id=joined.member_id, members=members
    )
    assert first.error_code == Errors.NONE
    if version >= 3:
        assert [m.error_code for m in first.members] == [Errors.NONE, Errors.UNKNOWN_MEMBER_ID]
    else:
        again = ctx.answer(ApiKey.LEAVE_GROUP, version, group_id="g1", member_id=joined.member_id)
        assert again.error_code == Errors.UNKNOWN_MEMBER_ID
    refused = ctx.answer(ApiKey.LEAVE_GROUP, version, group_id="", member_id="x", members=members)
    assert refused.error_code == Errors.INVALID_GROUP_ID


def commit_fields(version: int, offset: int = 5) -> dict[str, Any]:
    partition = {"committed_offset": offset, "committed_leader_epoch": 3, "committed_metadata": None}
    fields = {
        "group_id": "g1",
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [
            {"name": "t", "partitions": [{"partition_index": p, **partition} for p in (0, 1, 2)]},
            {"name": "nowhere", "partitions": [{"partition_index": 0, **partition}]},
        ],
    }
    if 2 <= version <= 4:
        fields["retention_time"] = 60_000
    return fields


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit_stores_what_exists_and_refuses_the_rest_in_every_version(ctx, version):
    committed = ctx.answer(ApiKey.OFFSET_COMMIT, version, **commit_fields(version))
    errors = {(t.name, p.partition_index): p.error_code for t in committed.topics for p in t.partitions}
    assert errors == {
        ("t", 0): Errors.NONE,
        ("t", 1): Errors.NONE,
        ("t", 2): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    stored = ctx.group_coordinator._registry.find("g1").group.offsets.all()
    assert {tp.partition: (o.offset, o.metadata) for tp, o in stored.items()} == {0: (5, ""), 1: (5, "")}
    expiry = ctx.clock.wall_ms() + 60_000 if 2 <= version <= 4 else None
    assert {o.expire_timestamp_ms for o in stored.values()} == {expiry}
    assert {o.leader_epoch for o in stored.values()} == {3 if version >= 6 else -1}


def test_offset_commit_version_1_brings_its_own_time(ctx):
    fields = commit_fields(1)
    fields["topics"][0]["partitions"][0]["commit_timestamp"] = 777
    ctx.answer(ApiKey.OFFSET_COMMIT, 1, **fields)
    stored = ctx.group_coordinator._registry.find("g1").group.offsets.all()
    assert sorted(o.commit_timestamp_ms for o in stored.values()) == [777, ctx.clock.wall_ms()]


def test_offset_commit_to_unknown_topics_alone_stores_nothing(ctx):
    fields = commit_fields(9)
    fields["topics"] = fields["topics"][1:]
    committed = ctx.answer(ApiKey.OFFSET_COMMIT, 9, **fields)
    assert committed.topics[0].partitions[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert ctx.group_coordinator.list_groups((), ())[1] == []


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch_in_every_version(ctx, version):
    ctx.answer(ApiKey.OFFSET_COMMIT, 9, **commit_fields(9))
    topics = [{"name": "t", "partition_indexes": [0, 7]}]
    groups = [{"group_id": "g1", "topics": topics}, {"group_id": "g2", "topics": topics}]
    fetched = ctx.answer(ApiKey.OFFSET_FETCH, version, group_id="g1", topics=topics, groups=groups)
    answers = fetched.groups if version >= 8 else [fetched]
    offsets = [[p.committed_offset for p in answer.topics[0].partitions] for answer in answers]
    assert offsets == ([[5, -1], [-1, -1]] if version >= 8 else [[5, -1]])
    assert {p.error_code for answer in answers for p in answer.topics[0].partitions} == {Errors.NONE}


@pytest.mark.parametrize("version", range(2, 10))
def test_offset_fetch_of_all_topics(ctx, version):
    ctx.answer(ApiKey.OFFSET_COMMIT, 9, **commit_fields(9))
    groups = [{"group_id": "g1", "topics": None}]
    fetched = ctx.answer(ApiKey.OFFSET_FETCH, version, group_id="g1", topics=None, groups=groups)
    answer = fetched.groups[0] if version >= 8 else fetched
    assert [p.partition_index for p in answer.topics[0].partitions] == [0, 1]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch_refusal_stands_where_the_version_has_room_for_it(ctx, version):
    ctx.group_coordinator.on_resignation(0, 1)
    topics = [{"name": "t", "partition_indexes": [0]}]
    groups = [{"group_id": "g1", "topics": topics}]
    fetched = ctx.answer(ApiKey.OFFSET_FETCH, version, group_id="g1", topics=topics, groups=groups)
    if version >= 8:
        assert fetched.groups[0].error_code == Errors.NOT_COORDINATOR
    elif version >= 2:
        assert fetched.error_code == Errors.NOT_COORDINATOR
    else:
        assert fetched.topics[0].partitions[0].error_code == Errors.NOT_COORDINATOR


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups_in_every_version(ctx, version):
    ctx.stable()
    described = ctx.answer(
        ApiKey.DESCRIBE_GROUPS, version, groups=["g1", "nowhere"], include_authorized_operations=True
    )
    known, unknown = described.groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    assert (known.members[0].member_metadata, known.members[0].member_assignment) == (b"meta", b"part")
    assert (unknown.error_code, unknown.group_state, unknown.members) == (Errors.NONE, "Dead", ())
    if version >= 3:
        assert known.authorized_operations > 0
        plain = ctx.answer(
            ApiKey.DESCRIBE_GROUPS, version, groups=["g1"], include_authorized_operations=False
        )
        assert plain.groups[0].authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups_in_every_version(ctx, version):
    ctx.stable()
    ctx.harness.commit({}, group="idle")
    listed = ctx.answer(ApiKey.LIST_GROUPS, version, states_filter=["Stable"], types_filter=["classic"])
    if version < 4:
        assert {g.group_id for g in listed.groups} == {"g1", "idle"}
    else:
        assert [(g.group_id, g.group_state) for g in listed.groups] == [("g1", "Stable")]
    assert listed.groups[0].protocol_type in ("consumer", "")


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups_answers_for_each_group_in_every_version(ctx, version):
    ctx.stable()
    ctx.harness.commit({}, group="idle")
    deleted = ctx.answer(ApiKey.DELETE_GROUPS, version, groups_names=["g1", "idle", "nowhere", "idle"])
    assert {r.group_id: r.error_code for r in deleted.results} == {
        "g1": Errors.NON_EMPTY_GROUP,
        "idle": Errors.NONE,
        "nowhere": Errors.GROUP_ID_NOT_FOUND,
    }
    assert ctx.answer(ApiKey.DELETE_GROUPS, version, groups_names=[]).results == ()


def delete_offsets(ctx: Context, *partitions: int, group: str = "g1", topic: str = "t") -> Any:
    rows = [{"partition_index": partition} for partition in partitions]
    return ctx.answer(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=[{"name": topic, "partitions": rows}])


def test_each_partition_whose_offset_is_to_be_deleted_has_its_own_error(ctx):
    ctx.harness.commit({TopicPartition("t", 0): 5, TopicPartition("t", 1): 6})
    answer = delete_offsets(ctx, 0, 7)
    assert answer.error_code == Errors.NONE
    assert {row.partition_index: row.error_code for row in answer.topics[0].partitions} == {
        0: Errors.NONE,
        7: Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert ctx.harness.offsets() == {TopicPartition("t", 1): 6}


def test_an_error_of_the_group_whose_offsets_are_to_be_deleted_is_told_without_partitions(ctx):
    answer = delete_offsets(ctx, 0, 7, group="nowhere")
    assert (answer.error_code, answer.topics) == (Errors.GROUP_ID_NOT_FOUND, ())
    assert delete_offsets(ctx, 0, group="").error_code == Errors.INVALID_GROUP_ID
    assert delete_offsets(ctx, 7, group="nowhere").error_code == Errors.GROUP_ID_NOT_FOUND


def find(ctx: Context, version: int, key: str = "g1", key_type: int = 0) -> Any:
    found = ctx.answer(ApiKey.FIND_COORDINATOR, version, key=key, key_type=key_type, coordinator_keys=[key])
    return found.coordinators[0] if version >= 4 else found


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator_has_the_offsets_topic_made_and_then_names_its_leader(ctx, version):
    assert find(ctx, version).error_code == Errors.COORDINATOR_NOT_AVAILABLE
    assert ctx.asked == [GROUP_METADATA_TOPIC]
    ctx.know(GROUP_METADATA_TOPIC, 1)
    found = find(ctx, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (
        Errors.NONE,
        1,
        "kafka.example",
        9092,
    )
    assert ctx.asked == [GROUP_METADATA_TOPIC]


def test_find_coordinator_of_a_broker_that_knows_no_cluster_yet_has_nothing_created(ctx):
    ctx.metadata_cache.update(MetadataUpdate(-1, [], {}, []))
    assert find(ctx, 6).error_code == Errors.COORDINATOR_NOT_AVAILABLE
    assert ctx.asked == []


def test_find_coordinator_without_a_live_leader_is_not_available(ctx):
    ctx.know(GROUP_METADATA_TOPIC, 1, leader=2)
    found = find(ctx, 6)
    assert (found.error_code, found.node_id, found.port) == (Errors.COORDINATOR_NOT_AVAILABLE, -1, -1)


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (2, Errors.INVALID_REQUEST),
        (9, Errors.INVALID_REQUEST),
    ],
)
def test_find_coordinator_refuses_other_keys_for_good(ctx, version, key_type, error):
    found = find(ctx, version, "tx", key_type)
    assert found.error_code == error
    assert found.error_message


@pytest.mark.parametrize("key", MODULES)
def test_error_of_the_broker_fits_every_version_of_every_api(ctx, key):
    for version in versions(key):
        message = codec.decode(key, version, "request", valid_requests.body(key, version, World()))
        refused = MODULES[key].error_response(message, KafkaError(Errors.UNKNOWN_SERVER_ERROR, "broken"))
        answer = codec.decode(key, version, "response", codec.encode(key, version, "response", refused))
        assert "unknown_server_error" in repr(answer).lower()


def test_offsets_of_a_deleted_topic_are_gone_when_the_controller_has_its_answer(ctx):
    """So its next request, which tells of a new topic of that name, comes after it, and clients' commits after that."""
    gone, kept = TopicPartition("t", 0), TopicPartition("u", 0)
    ctx.know("u", 1)
    ctx.harness.commit({gone: 5, kept: 6})
    deleted = PartitionInfo(0, LEADER_DURING_DELETE, EPOCH_DURING_DELETE, (), ())
    update = MetadataUpdate(1, [BrokerInfo(1, {"PLAINTEXT": ("kafka.example", 9092)})], {}, [("t", deleted)])
    assert ctx.answer(ApiKey.UPDATE_METADATA, 8, **update.fields()).error_code == Errors.NONE
    assert ctx.harness.offsets() == {kept: 6}
    ctx.know("t", 1)
    ctx.harness.commit({gone: 7})
    ctx.harness.scheduler.run()
    assert ctx.harness.offsets() == {gone: 7, kept: 6}
