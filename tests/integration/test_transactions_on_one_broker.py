"""Transactions as a partition's leader sees them: a raw client writes the batches, the markers and the offsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.kafka_dist import KafkaDistUnavailableError, dump_log_segments, run_tool
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.times import NOW_MS
from tests.support.transaction_requests import (
    ABORT,
    COMMIT,
    UNCOMMITTED,
    aborted,
    commit_offset,
    end,
    fetch,
    fetch_offset,
    in_transaction,
    list_offset,
    produce,
    read_committed,
    values_of,
    write_markers,
)
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

OFFSETS = "__consumer_offsets"
COMMAND = "org.apache.kafka.tools.TransactionsCommand"
VERIFICATION = "transaction.partition.verification.enable"
SET, DELETE = 0, 1
_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    """A broker that believes every producer: there is no coordinator to ask."""
    config: dict[str, object] = {
        "offsets.topic.num.partitions": 1,
        VERIFICATION: "false",
    }
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running
        assert "traceback=" not in running.log_text()


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"topic-{next(_numbers)}"
    assert client.create_topic(name).error_code == Errors.NONE
    return name


def test_a_consumer_of_committed_records_reads_neither_open_nor_aborted_ones(
    client: RawClient, topic: str
) -> None:
    for pid, value in ((1, b"a"), (2, b"b")):
        assert produce(client, topic, in_transaction(value, pid=pid)).error_code == Errors.NONE
    assert client.produce(topic, 0, some_records(b"c")).error_code == Errors.NONE
    assert read_committed(client, topic) == []
    answer = fetch(client, topic)
    assert (answer.high_watermark, answer.last_stable_offset, aborted(answer)) == (3, 0, [])
    assert values_of(fetch(client, topic, isolation=UNCOMMITTED)) == [b"a", b"b", b"c"]
    assert fetch(client, topic, isolation=UNCOMMITTED).aborted_transactions is None
    assert end(client, topic, 1, ABORT) is Errors.NONE
    assert read_committed(client, topic) == []
    assert fetch(client, topic).last_stable_offset == 1
    assert end(client, topic, 2, COMMIT) is Errors.NONE
    assert read_committed(client, topic) == [b"b", b"c"]
    assert aborted(fetch(client, topic)) == [(1, 0)]
    assert aborted(fetch(client, topic, 4)) == []  # the transaction ended at offset 3


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_tells_the_aborted_transactions(
    version: int, client: RawClient, topic: str
) -> None:
    produce(client, topic, in_transaction(b"a", pid=1))
    end(client, topic, 1, ABORT)
    answer = fetch(client, topic, version=version)
    assert (answer.last_stable_offset, aborted(answer)) == (2, [(1, 0)])
    assert aborted(fetch(client, topic, version=version, isolation=UNCOMMITTED)) is None


def test_a_waiting_consumer_is_answered_when_the_transaction_ends(
    broker: LandlineStandalone, client: RawClient, topic: str
) -> None:
    produce(client, topic, in_transaction(b"a", pid=1))
    with RawClient(HOST, broker.port) as producer, RawClient(HOST, broker.port) as waiting:
        produce(producer, topic, in_transaction(b"b", pid=1, sequence=1))
        assert values_of(fetch(waiting, topic, wait_ms=50)) == []
        end(producer, topic, 1, COMMIT)
        assert values_of(fetch(waiting, topic, wait_ms=60_000)) == [b"a", b"b"]


def test_offsets_are_listed_by_isolation_level(client: RawClient, topic: str) -> None:
    client.produce(topic, 0, some_records(b"a"))
    produce(client, topic, in_transaction(b"b", pid=1))
    assert (list_offset(client, topic), list_offset(client, topic, isolation=UNCOMMITTED)) == (1, 2)
    found = list_offset(client, topic, timestamp=0)
    assert found == 0
    end(client, topic, 1, COMMIT)
    assert list_offset(client, topic) == 3


def test_transactional_records_need_the_transactional_id(client: RawClient, topic: str) -> None:
    answer = produce(client, topic, in_transaction(b"a", pid=1), transactional_id=None)
    assert answer.error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.end_offset(topic) == 0


def test_records_in_no_transaction_are_refused_with_the_whole_request_wherever_they_go(
    client: RawClient, topic: str
) -> None:
    plain = {"name": topic, "partition_data": [{"index": 0, "records": some_records(b"plain")}]}
    stray = {"name": "nowhere", "partition_data": [{"index": 9, "records": in_transaction(b"a", pid=1)}]}
    for acks in (1, 2):
        fields = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": [plain, stray]}
        answer = client.ask(ApiKey.PRODUCE, 9, fields)
        codes = [row.error_code for each in answer.responses for row in each.partition_responses]
        assert codes == [Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert client.end_offset(topic) == 0


def test_a_producer_with_a_transactional_id_may_write_outside_of_transactions(
    client: RawClient, topic: str
) -> None:
    plain = in_transaction(b"a", pid=1, transactional=False)
    assert produce(client, topic, plain).error_code == Errors.NONE
    assert produce(client, topic, in_transaction(b"b", pid=1, sequence=1)).error_code == Errors.NONE
    late = in_transaction(b"c", pid=1, sequence=2, transactional=False)
    assert produce(client, topic, late).error_code == Errors.INVALID_TXN_STATE


def test_zombies_of_producer_and_coordinator_are_fenced(client: RawClient, topic: str) -> None:
    produce(client, topic, in_transaction(b"a", pid=1, epoch=3))
    assert end(client, topic, 1, ABORT, epoch=4, coordinator=7) is Errors.NONE
    refused = produce(client, topic, in_transaction(b"b", pid=1, sequence=1, epoch=3))
    assert refused.error_code == Errors.INVALID_PRODUCER_EPOCH
    assert end(client, topic, 1, COMMIT, epoch=3, coordinator=7) is Errors.INVALID_PRODUCER_EPOCH
    assert end(client, topic, 1, COMMIT, epoch=4, coordinator=6) is Errors.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("version", [0, 1])
def test_markers_are_answered_partition_by_partition(version: int, client: RawClient, topic: str) -> None:
    produce(client, topic, in_transaction(b"a", pid=1))
    found = write_markers(
        client,
        (1, 0, COMMIT, 0, {topic: [0, 5], "nowhere": [0]}),
        (2, 0, ABORT, 0, {topic: [0]}),
        version=version,
    )
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {
        1: {(topic, 0): Errors.NONE, (topic, 5): unknown, ("nowhere", 0): unknown},
        2: {(topic, 0): Errors.NONE},
    }
    assert write_markers(client, version=version) == {}


def test_producers_are_described_with_their_open_transactions(client: RawClient, topic: str) -> None:
    client.produce(topic, 0, some_records(b"a"))
    produce(client, topic, in_transaction(b"b", b"c", pid=1, epoch=2))
    end(client, topic, 2, ABORT, epoch=5, coordinator=9)
    asked = {
        "topics": [
            {"name": topic, "partition_indexes": [0, 3]},
            {"name": "no topic!", "partition_indexes": [0]},
        ]
    }
    found, invalid = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics
    assert invalid.partitions[0].error_code == Errors.INVALID_TOPIC_EXCEPTION
    known, absent = found.partitions
    assert absent.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    rows = [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
        for p in known.active_producers
    ]
    assert rows == [(1, 2, 1, -1, 1), (2, 5, -1, 9, -1)]


@pytest.fixture
def group(client: RawClient) -> str:
    name = f"group-{next(_numbers)}"

    def is_served() -> bool:
        found = client.ask(ApiKey.FIND_COORDINATOR, 2, {"key": name, "key_type": 0})
        if found.error_code != Errors.NONE:
            return False
        described = client.ask(ApiKey.DESCRIBE_GROUPS, 2, {"groups": [name]}).groups[0]
        return bool(described.error_code == Errors.NONE)

    wait_until(is_served, what="the group's coordinator serves")
    return name


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_transaction_become_valid_with_its_marker(
    version: int, client: RawClient, topic: str, group: str
) -> None:
    pid = next(_numbers)
    assert commit_offset(client, group, topic, 10, pid=pid, version=version) is Errors.NONE
    assert fetch_offset(client, group, topic, stable=True)[1] is Errors.UNSTABLE_OFFSET_COMMIT
    assert fetch_offset(client, group, topic, stable=False) == (-1, Errors.NONE)
    assert end(client, OFFSETS, pid, COMMIT) is Errors.NONE
    assert fetch_offset(client, group, topic, stable=True) == (10, Errors.NONE)
    assert commit_offset(client, group, topic, 20, pid=pid, version=version) is Errors.NONE
    assert end(client, OFFSETS, pid, ABORT) is Errors.NONE
    assert fetch_offset(client, group, topic, stable=True) == (10, Errors.NONE)


def test_offsets_are_refused_as_kafka_refuses_them(client: RawClient, topic: str, group: str) -> None:
    assert commit_offset(client, group, "nowhere", 1, pid=1) is Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert commit_offset(client, "", topic, 1, pid=1) is Errors.INVALID_GROUP_ID
    refused = commit_offset(client, group, topic, 1, pid=1, generation=3, member="stranger")
    assert refused is Errors.UNKNOWN_MEMBER_ID
    pid = next(_numbers)
    assert end(client, OFFSETS, pid, ABORT, epoch=2) is Errors.NONE
    assert commit_offset(client, group, topic, 1, pid=pid, epoch=1) is Errors.INVALID_PRODUCER_EPOCH


def test_open_transactions_survive_a_restart(tmp_path: Path) -> None:
    config: dict[str, object] = {
        "offsets.topic.num.partitions": 1,
        VERIFICATION: "false",
    }
    standalone = LandlineStandalone(tmp_path / "data", config)
    with standalone as broker, RawClient(HOST, broker.port) as client:
        assert client.create_topic("t").error_code == Errors.NONE
        client.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "g", "key_type": 0})
        wait_until(lambda: commit_offset(client, "g", "t", 7, pid=1) is Errors.NONE, what="it serves groups")
        produce(client, "t", in_transaction(b"a", pid=1))
        produce(client, "t", in_transaction(b"b", pid=2))
        end(client, "t", 2, ABORT)
    with standalone as broker, RawClient(HOST, broker.port) as client:
        wait_until(
            lambda: fetch_offset(client, "g", "t", stable=True)[1] is Errors.UNSTABLE_OFFSET_COMMIT,
            what="the group is loaded",
        )
        assert fetch(client, "t").last_stable_offset == 0
        assert write_markers(client, (1, 0, COMMIT, 0, {"t": [0], OFFSETS: [0]})) == {
            1: {("t", 0): Errors.NONE, (OFFSETS, 0): Errors.NONE}
        }
        assert read_committed(client, "t") == [b"a"]
        assert fetch_offset(client, "g", "t", stable=True) == (7, Errors.NONE)


@pytest.mark.slow
def test_kafkas_own_tools_find_and_abort_a_hanging_transaction_and_read_what_is_left(
    broker: LandlineStandalone, client: RawClient, topic: str
) -> None:
    client.produce(topic, 0, some_records(b"a"))
    produce(client, topic, in_transaction(b"b", pid=77, epoch=2, time_ms=NOW_MS - 3_600_000))
    where = ("--topic", topic, "--partition", "0")

    def transactions(*arguments: str) -> str:
        try:
            done = run_tool(COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)
        except KafkaDistUnavailableError as error:
            pytest.skip(str(error))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def hanging() -> list[list[str]]:
        rows = [line.split() for line in transactions("find-hanging", *broker_id).splitlines()]
        return [row for row in rows if row[:2] == [topic, "0"]]

    broker_id = ("--broker-id", str(broker.broker_id))
    row = transactions("describe-producers", *where).splitlines()[1].split()
    assert (row[0], row[1], row[-1]) == ("77", "2", "1")
    ((_, _, producer_id, epoch, *_),) = hanging()
    assert (producer_id, epoch) == ("77", "2")
    transactions("abort", *where, "--start-offset", "1")
    assert read_committed(client, topic) == [b"a"]
    assert hanging() == []
    assert transactions("describe-producers", *where).splitlines()[1].split()[-1] == "None"
    (directory,) = broker.log_dir.rglob(f"{topic}-0")
    files = [path for path in directory.iterdir() if path.suffix in {".log", ".txnindex"}]
    dumped = dump_log_segments(sorted(files), "--print-data-log")
    assert dumped.returncode == 0, dumped.stderr
    assert "endTxnMarker: ABORT" in dumped.stdout
    assert "version: 0 producerId: 77 firstOffset: 1 lastOffset: 2 lastStableOffset: 3" in dumped.stdout


def test_verification_is_turned_on_and_off_while_the_broker_runs(client: RawClient, topic: str) -> None:
    pids = count(1000)

    def written() -> bool:
        """Whether a producer may write in a transaction that no coordinator knows."""
        answer = produce(client, topic, in_transaction(b"v", pid=next(pids)))
        return Errors(answer.error_code) is Errors.NONE

    def alter(operation: int, value: str | None) -> None:
        config = {"name": VERIFICATION, "config_operation": operation, "value": value}
        resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
        fields = {"resources": [resource], "validate_only": False}
        (row,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
        assert Errors(row.error_code) is Errors.NONE, row.error_message

    assert written()
    alter(SET, "true")
    wait_until(lambda: not written(), what="verification is on")
    assert not written()
    alter(DELETE, None)
    wait_until(written, what="verification is as in the file again")
