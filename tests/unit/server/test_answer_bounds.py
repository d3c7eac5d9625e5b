"""A few bytes of request never make a large answer: what is named twice is told once, and all of it has a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.server.apis import list_offsets
from broker.server.apis.answer_budget import ROW_BYTES, AnswerBudget
from broker.utils import refusal_log
from broker.utils.topic_partition import TopicPartition
from tests.unit.server.test_group_apis import Context, versions

KIB = 1024
OFFSETS = 100
Told = Callable[[], list[Any]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """The lines that the operator has of answers too large; whatever was said of this peer before other tests."""
    monkeypatch.setattr(refusal_log, "_refusals", refusal_log.Refusals())
    with structlog.testing.capture_logs() as captured:
        yield lambda: [line for line in captured if line["event"] == "answer_too_large"]


def request(key: ApiKey = ApiKey.DESCRIBE_GROUPS) -> Request:
    return Request(
        key, 5, 1, "asker", memoryview(b""), ConnectionInfo("c", "10.0.0.9", "P"), 0, lambda _r: None
    )


def fat_group(ctx: Context, group: str, said: int, assigned: int = 0) -> None:
    """A stable group of one member that said so many bytes of itself, and was assigned so many."""
    protocols = [{"name": "range", "metadata": bytes(said)}]
    joined = ctx.join(9, group_id=group, session_timeout=600_000, protocols=protocols)
    ctx.answer(
        ApiKey.SYNC_GROUP,
        5,
        group_id=group,
        generation_id=1,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": bytes(assigned)}],
    )


def commit(ctx: Context, group: str) -> None:
    partitions = {TopicPartition("t", index): index for index in range(OFFSETS)}
    assert set(ctx.harness.commit(partitions, group=group).result.values()) == {Errors.NONE}


def describe(ctx: Context, version: int, *groups: str) -> Any:
    return ctx.answer(
        ApiKey.DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=False
    ).groups


def fetch_all(ctx: Context, *groups: str, version: int = 9) -> Any:
    asked = [{"group_id": group, "topics": None} for group in groups]
    return ctx.answer(ApiKey.OFFSET_FETCH, version, groups=asked).groups


def rows(group: Any) -> int:
    return sum(len(topic.partitions) for topic in group.topics)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_a_group_named_a_hundred_times_is_described_once(version: int) -> None:
    ctx = Context()
    fat_group(ctx, "fat", 64 * KIB)
    described = describe(ctx, version, *["fat"] * 100, "other", "fat")
    assert [group.group_id for group in described] == ["fat", "other"]
    assert len(described[0].members[0].member_metadata) == 64 * KIB


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_groups_that_do_not_fit_behind_others_are_to_be_asked_for_again(version: int, told: Told) -> None:
    ctx = Context(landline_answer_max_bytes=100 * KIB)
    for group in ("a", "b", "c"):
        fat_group(ctx, group, 45 * KIB)
    described = describe(ctx, version, "a", "b", "c", "none")
    later = Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert [group.error_code for group in described] == [Errors.NONE, Errors.NONE, later, later]
    assert [len(group.members) for group in described] == [1, 1, 0, 0]
    assert [group.error_code for group in describe(ctx, version, "c", "none")] == [Errors.NONE, Errors.NONE]
    (line,) = told()
    assert "describe_groups: group c does not fit" in line["reason"]
    assert (line["setting"], line["most"], line["peer"]) == (
        "landline.answer.max.bytes",
        100 * KIB,
        "10.0.0.9",
    )


def test_a_group_too_large_for_any_answer_is_refused_for_good_and_costs_the_others_nothing(
    told: Told,
) -> None:
    ctx = Context(landline_answer_max_bytes=100 * KIB)
    fat_group(ctx, "fat", KIB, assigned=100 * KIB)
    fat_group(ctx, "thin", KIB)
    described = describe(ctx, 5, "fat", "thin")
    assert [group.error_code for group in described] == [Errors.INVALID_REQUEST, Errors.NONE]
    assert "group fat alone takes" in told()[0]["reason"]


def test_offsets_of_a_group_named_a_hundred_times_are_told_once() -> None:
    ctx = Context()
    commit(ctx, "g1")
    (answered,) = fetch_all(ctx, *["g1"] * 100)
    assert rows(answered) == OFFSETS


def test_a_group_named_twice_is_told_all_that_was_asked_of_it() -> None:
    ctx = Context()
    commit(ctx, "g1")
    some = [
        {"group_id": "g1", "topics": [{"name": "t", "partition_indexes": indexes}]}
        for indexes in ([0, 1, 1], [1, 2])
    ]
    (answered,) = ctx.answer(ApiKey.OFFSET_FETCH, 9, groups=some).groups
    assert [p.partition_index for p in answered.topics[0].partitions] == [0, 1, 2]
    (everything,) = ctx.answer(
        ApiKey.OFFSET_FETCH, 9, groups=[*some, {"group_id": "g1", "topics": None}, *some]
    ).groups
    assert rows(everything) == OFFSETS


def test_offsets_that_do_not_fit_behind_others_are_to_be_asked_for_again(told: Told) -> None:
    ctx = Context(landline_answer_max_bytes=ROW_BYTES * (OFFSETS + 1) * 2 + 100)
    for group in ("a", "b", "c"):
        commit(ctx, group)
    answered = fetch_all(ctx, "a", "b", "c")
    assert [rows(group) for group in answered] == [OFFSETS, OFFSETS, 0]
    assert answered[2].error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert rows(fetch_all(ctx, "c")[0]) == OFFSETS
    assert len(told()) == 1


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offsets_too_many_for_any_answer_are_refused_in_the_place_the_version_has(
    version: int, told: Told
) -> None:
    ctx = Context(landline_answer_max_bytes=ROW_BYTES * 10)
    commit(ctx, "g1")
    topics = [{"name": "t", "partition_indexes": range(OFFSETS)}]
    groups = [{"group_id": "g1", "topics": topics}]
    fetched = ctx.answer(ApiKey.OFFSET_FETCH, version, group_id="g1", topics=topics, groups=groups)
    if version >= 8:
        assert fetched.groups[0].error_code == Errors.INVALID_REQUEST
    elif version >= 2:
        assert (fetched.error_code, fetched.topics) == (Errors.INVALID_REQUEST, ())
    else:
        assert {p.error_code for p in fetched.topics[0].partitions} == {Errors.INVALID_REQUEST}
    assert told()


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_more_groups_than_an_answer_may_have_are_not_listed(version: int, told: Told) -> None:
    ctx = Context(landline_answer_max_bytes=ROW_BYTES * 3)
    for group in ("a", "b"):
        commit(ctx, group)
    fields = {"states_filter": [], "types_filter": []}
    assert len(ctx.answer(ApiKey.LIST_GROUPS, version, **fields).groups) == 2
    commit(ctx, "c")
    listed = ctx.answer(ApiKey.LIST_GROUPS, version, **fields)
    assert (listed.error_code, listed.groups) == (Errors.INVALID_REQUEST, ())
    assert "3 groups" in told()[0]["reason"]


def test_a_leader_is_not_told_more_of_its_members_than_an_answer_may_have(told: Told) -> None:
    ctx = Context(landline_answer_max_bytes=100 * KIB)
    protocols = [{"name": "range", "metadata": bytes(100 * KIB)}]
    assert ctx.join(9, protocols=protocols).error_code == Errors.GROUP_MAX_SIZE_REACHED
    assert "1 members say of themselves" in told()[0]["reason"]


def test_a_coordinator_asked_for_twice_is_told_once() -> None:
    ctx = Context()
    found = ctx.answer(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g", "h", "g"])
    assert [coordinator.key for coordinator in found.coordinators] == ["g", "h"]


class NoPartitions:
    """Of ApiContext what ListOffsets asks first: which partitions there are, and who asked."""

    def __init__(self) -> None:
        self.metadata_cache = self
        self.looked_for: list[TopicPartition] = []
        self.access = None

    def contains_partition(self, partition: TopicPartition) -> bool:
        self.looked_for.append(partition)
        return False


@pytest.mark.parametrize("version", range(1, APIS[ApiKey.LIST_OFFSETS].max_version + 1))
def test_a_partition_named_twice_is_searched_for_no_time(version: int) -> None:
    partitions = [{"partition_index": index, "timestamp": 1_000} for index in (0, 1, 0)]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": partitions}]}
    body = codec.encode(ApiKey.LIST_OFFSETS, version, "request", fields)
    ctx = NoPartitions()
    message = codec.decode(ApiKey.LIST_OFFSETS, version, "request", body)
    (topic,) = list_offsets.handle(request(ApiKey.LIST_OFFSETS), message, ctx)["topics"]  # type: ignore[arg-type]
    twice, unknown = Errors.INVALID_REQUEST, Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert [row["error_code"] for row in topic["partitions"]] == [twice, unknown, twice]
    assert ctx.looked_for == [TopicPartition("t", 1)]


def test_a_full_answer_stays_full_and_says_so_once(told: Told) -> None:
    budget = AnswerBudget(request(), 100, later=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    sizes = (101, 60, 41, 1, 101)
    assert [budget.refusal(size, "it") for size in sizes] == [
        Errors.INVALID_REQUEST,
        Errors.NONE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.INVALID_REQUEST,
    ]
    assert len(told()) == 1


def test_what_an_answer_counts_is_no_less_than_what_it_takes() -> None:
    ctx = Context(landline_answer_max_bytes=70 * KIB)
    for number in range(40):
        fat_group(ctx, f"g{number}", 5 * KIB)
        commit(ctx, f"h{number}")
    groups = describe(ctx, 5, *[f"g{number}" for number in range(40)])
    assert 60 * KIB < sum(len(m.member_metadata) for group in groups for m in group.members) < 70 * KIB
    offsets = fetch_all(ctx, *[f"h{number}" for number in range(40)])
    fields = {"throttle_time": 0, "groups": offsets}
    assert len(codec.encode(ApiKey.OFFSET_FETCH, 9, "response", fields)) < 70 * KIB
