"""Transactions of a running broker, by raw requests: from the first FindCoordinator to time-outs and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.kafka_dist import KafkaDistUnavailableError, dump_log_segments, run_tool
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.transactional_producer import TOPIC, UNKNOWN, Producer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
CONFIG = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.segment.bytes": 65_536,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    "transactional.id.expiration.ms": 3_600_000,
    "offsets.topic.num.partitions": 2,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", dict(CONFIG)) as running:
        with RawClient(HOST, running.port) as client:
            assert client.create_topic(TOPIC, 3).error_code == Errors.NONE
        yield running


@pytest.fixture
def client(broker: LandlineStandalone) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port) as raw:
        yield raw


@pytest.fixture
def producer(client: RawClient, request: pytest.FixtureRequest) -> Producer:
    made = Producer(client, request.node.name)
    made.begin()
    return made


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_runs_from_its_begin_to_its_end(producer: Producer, commit: bool) -> None:
    for _ in range(2):
        assert producer.verify(0) == [Errors.TRANSACTION_ABORTABLE]
        assert producer.add(0, 2) == [Errors.NONE, Errors.NONE]
        assert producer.add_offsets("group") == Errors.NONE
        assert producer.verify(0, 1, 2) == [Errors.NONE, Errors.TRANSACTION_ABORTABLE, Errors.NONE]
        assert producer.end(commit=commit) == Errors.NONE
        producer.await_state("CompleteCommit" if commit else "CompleteAbort")
    assert producer.end(commit=commit) == Errors.NONE
    assert producer.end(commit=not commit) == Errors.INVALID_TXN_STATE


def test_a_new_producer_fences_the_one_before_and_aborts_what_it_left(
    producer: Producer, client: RawClient
) -> None:
    producer.add()
    other = Producer(client, producer.name)
    wait_until(lambda: other.init() is Errors.NONE, what="the open transaction is aborted")
    assert (other.producer_id, other.epoch) == (producer.producer_id, producer.epoch + 2)
    assert producer.add() == [Errors.PRODUCER_FENCED]
    assert producer.end() == Errors.PRODUCER_FENCED
    assert other.state() == "Empty"


def test_a_transaction_that_takes_too_long_is_aborted(client: RawClient) -> None:
    producer = Producer(client, "slow", timeout_ms=200)
    producer.begin()
    producer.add()
    producer.await_state("CompleteAbort")
    assert producer.end() == Errors.PRODUCER_FENCED


def test_transactions_are_listed(producer: Producer, client: RawClient) -> None:
    producer.add()
    asked = {"state_filters": ["Ongoing", "Odd"], "producer_id_filters": [producer.producer_id]}
    listed = client.ask(ApiKey.LIST_TRANSACTIONS, 1, {**asked, "duration_filter": -1})
    assert [(row.transactional_id, row.transaction_state) for row in listed.transaction_states] == [
        (producer.name, "Ongoing")
    ]
    assert listed.unknown_state_filters == ("Odd",)
    long = client.ask(ApiKey.LIST_TRANSACTIONS, 1, {**asked, "duration_filter": 3_600_000})
    assert long.transaction_states == ()
    producer.end(commit=False)


def test_the_topic_of_transactions_has_kafkas_configs(producer: Producer, client: RawClient) -> None:
    resource = {"resource_type": 2, "resource_name": "__transaction_state", "configuration_keys": None}
    (result,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results
    configs = {config.name: config.value for config in result.configs}
    assert {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "65536",
        "unclean.leader.election.enable": "false",
    }.items() <= configs.items()
    asked = {"topics": [{"name": "__transaction_state", "topic_id": None}]}
    metadata = client.ask(ApiKey.METADATA, 12, {**asked, "include_topic_authorized_operations": False})
    assert (len(metadata.topics[0].partitions), metadata.topics[0].is_internal) == (3, True)


def test_a_partition_that_was_deleted_holds_up_no_transaction(producer: Producer, client: RawClient) -> None:
    identity = {f"v3_and_below_{name}": value for name, value in producer.identity.items()}
    assert client.create_topic("gone").error_code == Errors.NONE
    topics = [{"name": "gone", "partitions": [0]}]
    answer = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, {**identity, "v3_and_below_topics": topics})
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == Errors.NONE
    client.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "gone", "topic_id": None}], "timeout": 30_000})
    assert producer.end() == Errors.NONE
    producer.await_state("CompleteCommit")


def test_a_transactional_id_of_ten_kilobytes(client: RawClient) -> None:
    producer = Producer(client, "x" * 10_240)
    producer.begin()
    assert producer.add() == [Errors.NONE]
    assert producer.end() == Errors.NONE
    producer.await_state("CompleteCommit")


def test_an_open_transaction_survives_a_restart_and_kafka_reads_its_records(tmp_path: Path) -> None:
    with (
        LandlineStandalone(tmp_path / "data", dict(CONFIG)) as broker,
        RawClient(HOST, broker.port) as client,
    ):
        assert client.create_topic(TOPIC, 3).error_code == Errors.NONE
        ended, left = Producer(client, "ended"), Producer(client, "left")
        for producer in (ended, left):
            producer.begin()
            producer.add(0, 1)
        ended.end()
        ended.await_state("CompleteCommit")
    with (
        LandlineStandalone(tmp_path / "data", dict(CONFIG)) as broker,
        RawClient(HOST, broker.port) as client,
    ):
        left.client = ended.client = client
        wait_until(lambda: left.state() == "Ongoing", what="the transactions are loaded")
        assert ended.state() == "CompleteCommit"
        described = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["left"]})
        (row,) = described.transaction_states
        assert (row.error_code, row.transaction_state, row.producer_id) == (0, "Ongoing", left.producer_id)
        assert [(topic.topic, topic.partitions) for topic in row.topics] == [(TOPIC, (0, 1))]
        assert left.verify(0, 2) == [Errors.NONE, Errors.TRANSACTION_ABORTABLE]
        assert left.end(commit=False) == Errors.NONE
        left.await_state("CompleteAbort")
    logs = sorted(broker.log_dir.rglob("__transaction_state-*/*.log"))
    try:
        dumped = dump_log_segments([log for log in logs if log.stat().st_size], "--transaction-log-decoder")
    except KafkaDistUnavailableError as error:
        pytest.skip(str(error))
    assert dumped.returncode == 0, dumped.stderr
    for part in (
        "transactionalId=left",
        "state=Ongoing",
        "state=PrepareCommit",
        "state=CompleteAbort",
        "t-1",
    ):
        assert part in dumped.stdout
    assert "corrupt" not in dumped.stdout.lower()


def test_kafkas_own_tool_lists_and_describes_transactions(
    broker: LandlineStandalone, producer: Producer, client: RawClient
) -> None:
    empty = Producer(client, "without-a-transaction")
    empty.begin()
    producer.add(1, 2)

    def transactions(*arguments: str) -> list[list[str]]:
        """The rows of the tool's table."""
        try:
            done = run_tool(COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)
        except KafkaDistUnavailableError as error:
            pytest.skip(str(error))
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()[1:]]

    listed = {row[0]: row[1:] for row in transactions("list")}
    assert listed[producer.name] == ["0", str(producer.producer_id), "Ongoing"]
    assert listed[empty.name] == ["0", str(empty.producer_id), "Empty"]
    (described,) = transactions("describe", "--transactional-id", producer.name)
    assert described[:5] == ["0", producer.name, str(producer.producer_id), "0", "Ongoing"]
    assert described[5] == "60000"
    assert set(described[-1].split(",")) == {"t-1", "t-2"}
    (described,) = transactions("describe", "--transactional-id", empty.name)
    assert described[:6] == ["0", empty.name, str(empty.producer_id), "0", "Empty", "60000"]
    producer.end()


def test_an_unused_transactional_id_expires(tmp_path: Path) -> None:
    config = {**CONFIG, "transactional.id.expiration.ms": 300}
    with LandlineStandalone(tmp_path / "data", config) as broker, RawClient(HOST, broker.port) as client:
        producer = Producer(client, "brief")
        producer.begin()
        producer.await_state(UNKNOWN)
        assert client.end_offset("__transaction_state", _partition_of(client)) >= 2


def test_ids_whose_transactions_are_never_ended_are_bounded_and_go_by_themselves(tmp_path: Path) -> None:
    """Who makes ids without end holds up neither who has one nor, in the end, who wants one."""
    config = {**CONFIG, "landline.transaction.max.bytes": 30_000, "transactional.id.expiration.ms": 3_000}
    with LandlineStandalone(tmp_path / "data", config) as broker, RawClient(HOST, broker.port) as client:
        assert client.create_topic(TOPIC).error_code == Errors.NONE
        first = Producer(client, "first")
        first.begin()
        assert first.add() == [Errors.NONE]
        flood: list[Producer] = []
        refused = Errors.NONE
        while refused is Errors.NONE and len(flood) < 1_000:
            flood.append(Producer(client, f"flood-{len(flood)}", timeout_ms=3_000))
            refused = flood[-1].until(flood[-1].init)
            if refused is Errors.NONE:
                answer = flood[-1].add()
                refused = Errors(answer[0])
        assert refused is Errors.POLICY_VIOLATION
        assert 10 < len(flood) < 200
        more = [Producer(client, f"more-{number}").init() for number in range(50)]
        assert more[-40:] == [Errors.POLICY_VIOLATION] * 40, "a partition had no room, a new id perhaps had"
        assert 1 <= broker.log_text().count("transaction_memory_full") < 10
        assert first.end() == Errors.NONE
        flood[0].await_state("CompleteAbort")
        flood[0].await_state(UNKNOWN)
        late = Producer(client, "late")
        wait_until(lambda: late.init() is Errors.NONE, what="there is room again")
        assert late.add() == [Errors.NONE]
        assert late.end() == Errors.NONE


def test_the_topic_of_transactions_is_made_for_whoever_asks_for_its_metadata(tmp_path: Path) -> None:
    config = {**CONFIG, "auto.create.topics.enable": "true"}
    asked = {
        "topics": [{"name": "__transaction_state", "topic_id": None}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    with LandlineStandalone(tmp_path / "data", config) as broker, RawClient(HOST, broker.port) as client:

        def partitions() -> int:
            (topic,) = client.ask(ApiKey.METADATA, 12, asked).topics
            return len(topic.partitions)

        wait_until(lambda: partitions() == 3, what="the topic is there")


def _partition_of(client: RawClient) -> int:
    """The one partition that has records."""
    return next(number for number in range(3) if client.end_offset("__transaction_state", number))
