"""Small requests for all that groups hold, on a real broker: what it answers, its memory, and a victim beside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame, stranger
from rig.wait import wait_until
from tests.support.victim import VICTIM, Victim

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

MIB = 1024 * 1024
MOST = 8 * MIB
FAT_GROUPS = 20  # a MiB each: more than twice what an answer may have
PARTITIONS = 1_000
MENTIONS = 100_000
# A victim's request on a busy machine; unbounded, an answer took minutes, or the broker.
LATE_S = 5.0
# An answer while it is made, twice, and the requests themselves.
GROWN_MIB = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    data: Path = tmp_path_factory.mktemp("asked") / "data"
    config: dict[str, object] = {
        "landline.answer.max.bytes": MOST,
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    with LandlineStandalone(data, config) as running:
        with RawClient(HOST, running.port) as client:
            assert client.create_topic("many", PARTITIONS).error_code == Errors.NONE
            assert client.create_topic(VICTIM).error_code == Errors.NONE
            client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
            wait_until(lambda: commit(client) == Errors.NONE, what="the group's offsets are committed")
            for number in range(FAT_GROUPS):
                make_fat(client, f"fat-{number}")
        yield running
        assert "thread_died" not in running.log_text()


def commit(client: RawClient) -> int:
    rows = [
        {"partition_index": index, "committed_offset": 1, "committed_metadata": ""}
        for index in range(PARTITIONS)
    ]
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "many", "partitions": rows}],
    }
    return int(client.ask(ApiKey.OFFSET_COMMIT, 8, fields).topics[0].partitions[0].error_code)


def make_fat(client: RawClient, group: str) -> None:
    """A stable group of one member that said a MiB of itself."""
    fields = {
        "group_id": group,
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "member_id": "",
        "group_instance_id": "one",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(MIB - 1_000)}],
    }
    joined = client.ask(ApiKey.JOIN_GROUP, 5, fields)
    assert joined.error_code == Errors.NONE
    fields = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": "one",
        "assignments": [],
    }
    assert client.ask(ApiKey.SYNC_GROUP, 3, fields).error_code == Errors.NONE


def asked(broker: LandlineStandalone, key: ApiKey, version: int, fields: dict[str, Any]) -> tuple[Any, int]:
    """The answer to a hostile peer, and its size; the broker keeps its memory and serves a victim meanwhile."""
    frame = request_frame(key, version, codec.encode(key, version, "request", fields))
    before, most = broker.rss_mb(), 0.0
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, broker.rss_mb())

    watcher = threading.Thread(target=watch, daemon=True)
    with Victim(broker.port) as victim, RawClient(HOST, broker.port, from_host=stranger()) as hostile:
        watcher.start()
        hostile.send(frame)
        answer = hostile.receive_frame()
        victim.is_served_again()
        over.set()
        watcher.join()
    assert victim.longest_s < LATE_S
    assert most - before < GROWN_MIB, f"{before:.0f} MiB grew to {most:.0f}"
    wait_until(broker.is_ready)
    return codec.decode(key, version, "response", memoryview(answer)[5:]), len(answer)


def test_a_fat_group_named_a_hundred_thousand_times_is_described_once(broker: LandlineStandalone) -> None:
    fields = {"groups": ["fat-0"] * MENTIONS, "include_authorized_operations": False}
    answer, size = asked(broker, ApiKey.DESCRIBE_GROUPS, 5, fields)
    assert [(group.group_id, len(group.members)) for group in answer.groups] == [("fat-0", 1)]
    assert size < 2 * MIB


def test_fat_groups_are_described_up_to_the_bound_and_the_others_when_they_are_asked_for_again(
    broker: LandlineStandalone,
) -> None:
    left = [f"fat-{number}" for number in range(FAT_GROUPS)]
    rounds = 0
    while left:
        fields = {"groups": left, "include_authorized_operations": False}
        answer, size = asked(broker, ApiKey.DESCRIBE_GROUPS, 5, fields)
        assert size < MOST
        told = {group.group_id for group in answer.groups if group.error_code == Errors.NONE}
        later = [g.group_id for g in answer.groups if g.error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS]
        assert told
        assert len(told) + len(later) == len(left)
        left = later
        rounds += 1
    assert rounds == 3
    wait_until(lambda: "answer_too_large" in broker.log_text())
    assert "landline.answer.max.bytes" in broker.log_text()


def test_a_groups_offsets_asked_for_a_hundred_thousand_times_are_told_once(
    broker: LandlineStandalone,
) -> None:
    groups = [{"group_id": "g", "topics": None}] * MENTIONS
    answer, size = asked(broker, ApiKey.OFFSET_FETCH, 8, {"groups": groups, "require_stable": False})
    (group,) = answer.groups
    assert [len(topic.partitions) for topic in group.topics] == [PARTITIONS]
    assert {partition.committed_offset for partition in group.topics[0].partitions} == {1}
    assert size < MIB
