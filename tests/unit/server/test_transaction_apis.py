"""The transaction APIs on the wire: each version decoded, served by a real coordinator, and encoded again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.security.acls import AclOperation, ResourceType
from broker.server.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from tests.support import valid_requests
from tests.support.api_talk import ApiTalk
from tests.support.group_fakes import Harness as GroupHarness
from tests.support.transaction_fakes import Harness
from tests.support.valid_requests import World

MODULES = {
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.END_TXN: end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
}
TX = {"transactional_id": "tx", "producer_id": 1000, "producer_epoch": 0}


def versions(key: ApiKey, first: int | None = None, last: int | None = None) -> range:
    api = APIS[key]
    return range(api.min_version if first is None else first, (api.max_version if last is None else last) + 1)


class Context(ApiTalk):
    """Of ApiContext what the transaction APIs use, with the real coordinator and metadata cache."""

    def __init__(self, **config: object) -> None:
        self.harness = Harness(**config)
        self.transaction_coordinator = self.harness.coordinator
        self.group_coordinator = GroupHarness(partitions=50).coordinator
        self.producer_ids = SimpleNamespace(take=self.harness._take_producer_id)
        super().__init__(MODULES, self.harness.config)

    def init(self, version: int, transactional_id: str | None = "tx", **fields: Any) -> Any:
        return self.answer(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=transactional_id,
            transaction_timeout=60_000,
            **fields,
        )

    def add(self, version: int, *partitions: int, topic: str = "t") -> Any:
        """The error of each partition."""
        older = {f"v3_and_below_{name}": value for name, value in TX.items()}
        topics = [{"name": topic, "partitions": partitions or (0,)}]
        answer = self.answer(ApiKey.ADD_PARTITIONS_TO_TXN, version, **older, v3_and_below_topics=topics)
        return errors_of(answer.results_by_topic_v3_and_below)

    def allow(self, *allowed: tuple[AclOperation, ResourceType, str]) -> None:
        """Nothing but this."""

        def allows(
            _request: Any, operation: AclOperation, kind: ResourceType, name: str, *, told: bool = True
        ) -> bool:
            return (operation, kind, name) in allowed

        self.access = SimpleNamespace(allows=allows, allows_any=lambda *_: False)


def errors_of(topics: Any) -> list[int]:
    return [row.partition_error_code for topic in topics for row in topic.results_by_partition]


@pytest.fixture
def ctx() -> Context:
    return Context()


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR, 1))
def test_find_coordinator_has_the_topic_made_and_then_names_its_leader(ctx: Context, version: int) -> None:
    def find() -> Any:
        asked = {"key": "tx", "key_type": 1, "coordinator_keys": ["tx"]}
        found = ctx.answer(ApiKey.FIND_COORDINATOR, version, **asked)
        return found.coordinators[0] if version >= 4 else found

    assert find().error_code == Errors.COORDINATOR_NOT_AVAILABLE
    assert ctx.asked == [TRANSACTION_STATE_TOPIC]
    ctx.know(TRANSACTION_STATE_TOPIC, 1)
    assert (find().error_code, find().node_id, find().host) == (Errors.NONE, 1, "kafka.example")
    ctx.allow((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx"))
    assert find().error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id_gives_epochs_in_every_version(ctx: Context, version: int) -> None:
    answers = [ctx.init(version) for _ in range(2)]
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in answers] == [(0, 1000, 0), (0, 1000, 1)]
    idempotent = ctx.init(version, None)
    assert (idempotent.error_code, idempotent.producer_id, idempotent.producer_epoch) == (0, 1001, 0)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID, 3))
def test_init_producer_id_takes_a_producer_id_with_its_epoch_or_neither(ctx: Context, version: int) -> None:
    assert ctx.init(version, producer_id=7).error_code == Errors.INVALID_REQUEST
    assert ctx.init(version, producer_epoch=7).error_code == Errors.INVALID_REQUEST
    assert ctx.init(version, None, producer_epoch=7).error_code == Errors.INVALID_REQUEST
    ctx.init(version)
    assert ctx.init(version, producer_id=1000, producer_epoch=0).producer_epoch == 1


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID, 3))
def test_a_fenced_producer_is_told_so_in_words_that_its_version_knows(ctx: Context, version: int) -> None:
    for _ in range(3):
        ctx.init(version)
    fenced = ctx.init(version, producer_id=1000, producer_epoch=0).error_code
    assert fenced == (Errors.PRODUCER_FENCED if version >= 4 else Errors.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize("key", [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN])
def test_the_other_requests_of_a_fenced_producer_too(ctx: Context, key: ApiKey) -> None:
    ctx.init(4)
    ctx.init(4)
    for version in versions(key):
        error = ctx.answer(key, version, **TX, group_id="g") if key is ApiKey.ADD_OFFSETS_TO_TXN else None
        error = error or ctx.answer(key, version, **TX, committed=True)
        expected = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
        assert error.error_code == expected


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN, last=3))
def test_partitions_are_added_all_or_none_in_every_version(ctx: Context, version: int) -> None:
    ctx.init(4)
    assert ctx.add(version, 0, 7) == [Errors.OPERATION_NOT_ATTEMPTED, Errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert ctx.harness.state() == "Empty"
    assert ctx.add(version, 0, 1) == [Errors.NONE, Errors.NONE]
    assert ctx.harness.metadata().partitions == {"t": {0, 1}}
    ctx.harness.metadata().producer_epoch = 1
    assert ctx.add(version) == [Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH]


def test_a_client_adds_no_partition_of_an_internal_topic(ctx: Context) -> None:
    ctx.init(4)
    ctx.know(GROUP_METADATA_TOPIC, 1)
    assert ctx.add(3, topic=GROUP_METADATA_TOPIC) == [Errors.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN, 4))
def test_a_leader_asks_for_several_transactions_at_once(ctx: Context, version: int) -> None:
    ctx.init(4)
    ctx.init(4, "ty")
    ctx.add(3, 0)

    def transaction(name: str, producer_id: int, *partitions: int, verify: bool = True) -> dict[str, Any]:
        topics = [{"name": "t", "partitions": partitions}]
        return {
            "transactional_id": name,
            "producer_id": producer_id,
            "producer_epoch": 0,
            "verify_only": verify,
            "topics": topics,
        }

    def ask(*transactions: dict[str, Any]) -> dict[str, list[int]]:
        answer = ctx.answer(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=transactions)
        assert answer.error_code == Errors.NONE
        return {row.transactional_id: errors_of(row.topic_results) for row in answer.results_by_transaction}

    found = ask(
        transaction("tx", 1000, 0, 1), transaction("ty", 1001, 1, verify=False), transaction("tz", 5, 0)
    )
    assert found == {
        "tx": [Errors.NONE, Errors.TRANSACTION_ABORTABLE],
        "ty": [Errors.NONE],
        "tz": [Errors.INVALID_PRODUCER_ID_MAPPING],
    }
    assert ask(transaction("ty", 1001, 0, 1)) == {"ty": [Errors.TRANSACTION_ABORTABLE, Errors.NONE]}
    assert ask(transaction("ty", 1001, 1, 7)) == {
        "ty": [Errors.OPERATION_NOT_ATTEMPTED, Errors.UNKNOWN_TOPIC_OR_PARTITION]
    }
    asked_nothing = [transaction("tx", 1000)]
    (row,) = ctx.answer(
        ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=asked_nothing
    ).results_by_transaction
    assert (row.transactional_id, row.topic_results) == ("tx", ())
    assert ask() == {}
    ctx.allow()
    refused = ctx.answer(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[transaction("tx", 1000, 0)])
    assert refused.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_the_groups_partition_becomes_a_part_of_the_transaction(ctx: Context, version: int) -> None:
    ctx.init(4)
    assert ctx.answer(ApiKey.ADD_OFFSETS_TO_TXN, version, **TX, group_id="four").error_code == Errors.NONE
    # Java's "four".hashCode() is 3149094, as Utils.abs and the 50 partitions of the topic have it.
    assert ctx.harness.metadata().partitions == {GROUP_METADATA_TOPIC: {44}}


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_ended_in_every_version(ctx: Context, version: int, committed: bool) -> None:
    ctx.init(4)
    ctx.add(3)
    assert ctx.answer(ApiKey.END_TXN, version, **TX, committed=committed).error_code == Errors.NONE
    assert ctx.harness.state() == ("CompleteCommit" if committed else "CompleteAbort")


def test_transactions_are_described_each_once(ctx: Context) -> None:
    ctx.init(4)
    ctx.add(3, 1)
    names = ["tx", "no", "tx"]
    found = ctx.answer(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
    tx, unknown = found.transaction_states
    assert (tx.error_code, tx.transactional_id, tx.transaction_state) == (Errors.NONE, "tx", "Ongoing")
    assert (tx.producer_id, tx.producer_epoch, codec.to_ms(tx.transaction_timeout)) == (1000, 0, 60_000)
    assert round(tx.transaction_start_time.timestamp() * 1_000) == ctx.harness.clock.wall_ms()
    assert [(topic.topic, topic.partitions) for topic in tx.topics] == [("t", (1,))]
    assert unknown.error_code == Errors.TRANSACTIONAL_ID_NOT_FOUND


def test_an_empty_transaction_has_no_start_time_as_in_kafka(ctx: Context) -> None:
    state = describe_transactions._state(
        "tx", ctx.transaction_coordinator.describe("tx")._replace(start_ms=-1), set()
    )
    encoded = codec.encode_element(ApiKey.DESCRIBE_TRANSACTIONS, 0, "transaction_states", state)
    assert (-1).to_bytes(8, "big", signed=True) in encoded


def test_of_a_transaction_the_topics_are_shown_that_the_client_may_describe(ctx: Context) -> None:
    ctx.init(4)
    ctx.add(3)
    described = (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "tx")

    def ask() -> Any:
        return ctx.answer(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["tx"]).transaction_states[0]

    ctx.allow()
    assert ask().error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ctx.allow(described)
    assert (ask().error_code, ask().topics) == (Errors.NONE, ())
    ctx.allow(described, (AclOperation.DESCRIBE, ResourceType.TOPIC, "t"))
    assert [topic.topic for topic in ask().topics] == ["t"]


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_transactions_are_listed_that_the_client_may_describe(ctx: Context, version: int) -> None:
    for name in ("tx", "ty"):
        ctx.init(4, name)

    def names(**filters: Any) -> list[str]:
        asked = {"state_filters": [], "producer_id_filters": [], **filters}
        listed = ctx.answer(ApiKey.LIST_TRANSACTIONS, version, **asked)
        assert listed.error_code == Errors.NONE
        return [row.transactional_id for row in listed.transaction_states]

    assert sorted(names()) == ["tx", "ty"]
    assert names(producer_id_filters=[1001]) == ["ty"]
    assert names(state_filters=["Ongoing"]) == []
    ctx.allow((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "ty"))
    assert names() == ["ty"]
    asked = {"state_filters": ["Sleeping"], "producer_id_filters": []}
    assert ctx.answer(ApiKey.LIST_TRANSACTIONS, version, **asked).unknown_state_filters == ("Sleeping",)


def test_lists_and_descriptions_that_are_too_large_are_refused() -> None:
    ctx = Context(landline_answer_max_bytes=1_000)
    for number in range(20):
        ctx.init(4, f"tx-{number}")
    asked = {"state_filters": [], "producer_id_filters": []}
    assert ctx.answer(ApiKey.LIST_TRANSACTIONS, 1, **asked).error_code == Errors.INVALID_REQUEST
    names = [f"no-{number}" for number in range(20)]
    found = ctx.answer(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
    assert found.transaction_states[-1].error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS


def test_no_more_ids_are_looked_at_than_an_answer_has_room_for() -> None:
    ctx = Context(landline_answer_max_bytes=10_000)
    for number in range(2_000):
        ctx.init(4, f"tx-{number}")
    asked: list[str] = []

    def allows(_request: Any, _operation: Any, _kind: Any, name: str, *, told: bool) -> bool:
        assert not told, "nobody asked for this id"
        asked.append(name)
        return True

    ctx.access = SimpleNamespace(allows=allows)
    filters: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
    listed = ctx.answer(ApiKey.LIST_TRANSACTIONS, 1, **filters)
    assert (listed.error_code, listed.transaction_states) == (Errors.INVALID_REQUEST, ())
    assert len(asked) < 100


@pytest.mark.parametrize("key", MODULES)
def test_error_of_the_broker_fits_every_version_of_every_api(ctx: Context, key: ApiKey) -> None:
    for version in versions(key):
        message = codec.decode(key, version, "request", valid_requests.body(key, version, World()))
        refused = MODULES[key].error_response(message, KafkaError(Errors.UNKNOWN_SERVER_ERROR, "broken"))
        answer = codec.decode(key, version, "response", codec.encode(key, version, "response", refused))
        assert "unknown_server_error" in repr(answer).lower()
