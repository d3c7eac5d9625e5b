"""Where a request is served is decided by its size and by what it names, before it is decoded."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from bench.guard.smallest import FOR_BROKERS
from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors, ProtocolError, TooManyElements
from broker.protocol.fetch_requests import parse_fetch_request
from broker.protocol.produce_messages import parse_produce_request
from broker.server.admission import RULES, Place, Rule
from broker.server.apis import join_group
from broker.server.apis.table import ROUTES, Apis
from broker.server.broker_peers import BrokerPeers
from broker.server.quotas import QuotaManagers
from tests.support.contexts import context_of
from tests.support.group_fakes import Harness
from tests.support.valid_requests import ALL_VERSIONS, World, body

KIB = 1024
MANY = 100_001
HANDLED = [
    "leader_and_isr",
    "stop_replica",
    "update_metadata",
    "controlled_shutdown",
    "describe_groups",
    "list_groups",
    "create_topics",
    "delete_topics",
    "delete_records",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_configs",
    "alter_configs",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "create_partitions",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "delete_groups",
    "elect_leaders",
    "incremental_alter_configs",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "offset_delete",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "alter_partition",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "allocate_producer_ids",
    "consumer_group_heartbeat",
    "consumer_group_describe",
]


@dataclass
class Handlers:
    """The part of the context that a dispatch needs: where work for handlers goes. ``full``: none is taken."""

    full: bool = False
    work: list[Callable[[], None]] = field(default_factory=list)
    of_brokers: list[Callable[[], None]] = field(default_factory=list)
    long: list[Callable[[], None]] = field(default_factory=list)
    dear: list[bool] = field(default_factory=list)
    peers: BrokerPeers = field(default_factory=BrokerPeers)
    access: None = None
    quotas: QuotaManagers = field(default_factory=QuotaManagers)

    def submit(
        self, work: Callable[[], None], _request: Request | None = None, *, dear: bool = False
    ) -> bool:
        self.dear.append(dear)
        if not self.full:
            self.work.append(work)
        return not self.full

    def submit_long(
        self, work: Callable[[], None], _request: Request | None = None, *, dear: bool = False
    ) -> bool:
        assert not dear, "it has a thread of its own"
        self.long.append(work)
        return True

    def submit_of_broker(
        self, work: Callable[[], None], _request: Request | None = None, *, dear: bool = False
    ) -> bool:
        assert not dear, "what brokers ask waits for nobody's dear work"
        self.of_brokers.append(work)
        return True


def request_of(api_key: ApiKey, version: int, content: bytes) -> Request:
    # An address of its own, for refusals of one are told of once a second.
    info = ConnectionInfo("1", f"10.{len(content) % 251}.{api_key}.{version}", "PLAINTEXT")
    return Request(api_key, version, 7, "client", memoryview(content), info, 0, lambda _request: None)


def apis(handlers: Handlers) -> Apis:
    return Apis(context_of(handlers))


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    ("key", "size", "elements", "place"),
    [
        (ApiKey.HEARTBEAT, 100, 0, Place.HERE),
        (ApiKey.HEARTBEAT, 16 * KIB, 0, Place.HERE),
        (ApiKey.HEARTBEAT, 16 * KIB + 1, 0, Place.HANDLER),
        (ApiKey.METADATA, 8 * KIB, 512, Place.HERE),
        (ApiKey.METADATA, 8 * KIB, 513, Place.HANDLER),
        (ApiKey.METADATA, 1 << 20, 100_000, Place.HANDLER),
        (ApiKey.METADATA, 1 << 20, 100_001, Place.REFUSED),
        (ApiKey.PRODUCE, 100 << 20, 1, Place.HERE),
        (ApiKey.PRODUCE, 100 << 20, 1_001, Place.HANDLER),
        (ApiKey.FETCH, 64 * KIB, 2_000, Place.HERE),
        (ApiKey.FETCH, 64 * KIB, 2_001, Place.HANDLER),
        (ApiKey.FETCH, 1 << 24, 100_001, Place.REFUSED),
        (ApiKey.LIST_GROUPS, 0, 0, Place.HANDLER),
        (ApiKey.DESCRIBE_GROUPS, 1, 1, Place.HANDLER),
        (ApiKey.UPDATE_METADATA, 50 << 20, 2_200_000, Place.HANDLER),
        (ApiKey.UPDATE_METADATA, 50 << 20, 2_200_001, Place.REFUSED),
        (ApiKey.CONTROLLED_SHUTDOWN, 50 << 20, 1_001, Place.REFUSED),
    ],
)
def test_size_and_elements_decide(key: ApiKey, size: int, elements: int, place: Place) -> None:
    assert RULES[key].place(size, elements) is place


def test_every_api_has_a_rule() -> None:
    assert RULES.keys() == ROUTES.keys() == set(APIS)


def test_only_what_reads_its_bytes_where_they_lie_may_be_large_on_the_network_thread() -> None:
    large = {key.name.lower() for key, rule in RULES.items() if rule.place(16 * KIB + 1, 0) is Place.HERE}
    assert large == {"produce", "fetch", "api_versions"}


def test_what_may_block_never_runs_on_the_network_thread() -> None:
    assert [key.name.lower() for key, rule in RULES.items() if rule.place(0, 0) is Place.HANDLER] == HANDLED


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_valid_requests_are_counted_and_pass(key: ApiKey, version: int) -> None:
    valid = memoryview(body(key, version, World()))
    assert 0 <= codec.survey(key, version, valid, RULES[key].most_elements).elements < 20


def test_elements_within_elements_are_counted() -> None:
    topic = struct.pack(">h", 1) + b"t" + int32(3) + bytes(12)
    offset_fetch = struct.pack(">h", 1) + b"g" + int32(2) + topic * 2
    assert codec.survey(ApiKey.OFFSET_FETCH, 5, memoryview(offset_fetch), 100).elements == 8
    assert codec.survey(ApiKey.OFFSET_FETCH, 5, memoryview(offset_fetch), 8).elements == 8
    assert codec.survey(ApiKey.OFFSET_FETCH, 5, memoryview(offset_fetch), 7).elements == 8
    assert codec.survey(ApiKey.OFFSET_FETCH, 5, memoryview(offset_fetch), 2).elements == 3


def test_counting_ends_at_the_bound_whatever_follows() -> None:
    """Two million keys of a byte are not walked: the bytes behind the bound could be anything."""
    keys = b"\0" + uvarint(2_000_001) + b"\1" * 2_000_000
    assert codec.survey(ApiKey.FIND_COORDINATOR, 4, memoryview(keys), 512).elements == 513


@pytest.mark.parametrize(
    ("key", "version", "content"),
    [
        (ApiKey.DESCRIBE_GROUPS, 5, uvarint(MANY + 1) + b"\1" * MANY + b"\0\0"),
        (ApiKey.FIND_COORDINATOR, 4, b"\0" + uvarint(MANY + 1) + b"\1" * MANY + b"\0"),
        (ApiKey.METADATA, 4, int32(MANY) + (b"\0\1n") * MANY + b"\0"),
        (ApiKey.LIST_OFFSETS, 4, bytes(5) + int32(1) + b"\0\1t" + int32(MANY) + bytes(16) * MANY),
        (ApiKey.OFFSET_FETCH, 5, b"\0\1g" + int32(1) + b"\0\1t" + int32(MANY) + bytes(4) * MANY),
        (ApiKey.LEAVE_GROUP, 4, b"\2g" + uvarint(MANY + 1) + b"\1\0\0" * MANY + b"\0"),
        (ApiKey.DELETE_GROUPS, 2, uvarint(MANY + 1) + b"\2g" * MANY + b"\0"),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, int32(1) + b"\0\1t" + int32(MANY) + bytes(12) * MANY),
        (ApiKey.CREATE_TOPICS, 0, int32(MANY) + (b"\0\1t" + bytes(14)) * MANY + bytes(4)),
    ],
)
def test_too_many_elements_are_refused_by_a_handler_before_they_are_decoded(
    key: ApiKey, version: int, content: bytes
) -> None:
    handlers = Handlers()
    request = request_of(key, version, content)
    with structlog.testing.capture_logs() as lines:
        assert apis(handlers).dispatch(request) is Verdict.QUEUED
        assert not request.done
        (handlers.long or handlers.work).pop()()
    assert request.done
    [line] = [line for line in lines if line["event"] == "request_refused"]
    assert "more than 100000" in line["reason"]
    assert APIS[key].name in line["reason"]
    assert line["peer"] == request.connection.client_address
    if key in (ApiKey.OFFSET_FETCH, ApiKey.LEAVE_GROUP):  # their answers have an error for the whole
        assert request.payload is not None
        answer = b"".join(piece for piece in request.payload if isinstance(piece, bytes))
        start = 9 if version >= APIS[key].flexible_from else 8
        decoded = codec.decode(key, version, "response", answer[start:])
        assert decoded.error_code.value == Errors.INVALID_REQUEST
    else:
        assert request.payload is None


def test_an_error_is_encoded_for_every_version_that_has_a_place_for_it() -> None:
    places = 0
    for key, version in ALL_VERSIONS:
        if key in (ApiKey.PRODUCE, ApiKey.API_VERSIONS):
            continue
        encoded = codec.encode_error(key, version, Errors.INVALID_REQUEST)
        if encoded is not None:
            places += 1
            assert codec.decode(key, version, "response", encoded).error_code.value == Errors.INVALID_REQUEST
    assert places > 50


@pytest.mark.parametrize("full", [False, True])
def test_large_body_waits_for_a_handler_and_is_looked_at_by_none(full: bool) -> None:
    request = request_of(ApiKey.METADATA, 4, b"\xff" * (16 * KIB + 1))  # no Metadata at all
    handlers = Handlers(full)
    assert apis(handlers).dispatch(request) is (Verdict.FULL if full else Verdict.QUEUED)
    assert not request.done
    assert len(request.body) == 16 * KIB + 1


@pytest.mark.parametrize("key", sorted(FOR_BROKERS))
def test_what_brokers_ask_has_handlers_that_clients_cannot_fill(key: ApiKey) -> None:
    handlers = Handlers(full=True)
    served = apis(handlers)
    assert served.dispatch(request_of(ApiKey.LIST_GROUPS, 0, b"")) is Verdict.FULL
    version = APIS[key].max_version
    assert served.dispatch(request_of(key, version, body(key, version, World()))) is Verdict.QUEUED
    assert len(handlers.of_brokers) == 1


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.OFFSET_FETCH, 5, {"group_id": "g", "topics": None}),
        (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]}),
        (
            ApiKey.LIST_OFFSETS,
            7,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": 1}]}],
            },
        ),
        (ApiKey.LIST_GROUPS, 0, {}),
    ],
)
def test_small_request_with_large_work_waits_for_a_handler(key: ApiKey, version: int, fields: Any) -> None:
    handlers = Handlers()
    request = request_of(key, version, codec.encode(key, version, "request", fields))
    assert apis(handlers).dispatch(request) is Verdict.QUEUED
    assert len(handlers.work) == 1


@pytest.mark.parametrize(
    ("key", "version", "content", "done"),
    [
        (ApiKey.LIST_GROUPS, 0, b"", False),
        (ApiKey.METADATA, 4, b"\xff" * (16 * KIB + 1), False),
        (ApiKey.LEAVE_GROUP, 4, b"\xff" * (16 * KIB + 1), True),
    ],
)
def test_what_only_asks_is_not_computed_for_who_has_gone(
    key: ApiKey, version: int, content: bytes, done: bool
) -> None:
    handlers = Handlers()
    request = request_of(key, version, content)
    assert apis(handlers).dispatch(request) is Verdict.QUEUED
    request.connection.gone = True
    handlers.work.pop()()
    assert request.done is done


@pytest.mark.parametrize(
    ("key", "version", "content", "dear"),
    [
        (ApiKey.METADATA, 4, b"\xff" * (16 * KIB + 1), True),
        (ApiKey.LIST_GROUPS, 0, b"", True),
        (ApiKey.CREATE_TOPICS, 0, int32(0) + bytes(4), False),
        (ApiKey.OFFSET_FETCH, 5, b"\0\1g" + int32(-1), True),
        (ApiKey.DESCRIBE_CONFIGS, 0, int32(0), False),
        (ApiKey.DESCRIBE_LOG_DIRS, 0, int32(-1), True),
        (ApiKey.ELECT_LEADERS, 0, int32(-1) + bytes(4), True),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, bytes(4) + b"\1\0", True),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, bytes(4) + b"\0\0", True),
    ],
)
def test_what_computes_for_long_is_dear_and_what_waits_for_others_is_not(
    key: ApiKey, version: int, content: bytes, dear: bool
) -> None:
    handlers = Handlers()
    apis(handlers).dispatch(request_of(key, version, content))
    assert handlers.dear == [dear]


def test_who_joins_a_group_whose_partitions_the_broker_assigns_is_dear_and_no_other(monkeypatch) -> None:
    """An assignment among a thousand members takes tens of milliseconds, whatever a small JoinGroup says."""
    joined: list[str] = []
    monkeypatch.setattr(join_group, "handle", lambda _request, message, _ctx: joined.append(message.group_id))
    handlers = Handlers()
    coordinator = Harness().coordinator
    coordinator.consumers = SimpleNamespace(has="of-kafka-4".__eq__)  # type: ignore[assignment]
    handlers.group_coordinator = coordinator  # type: ignore[attr-defined]
    rest = int32(30_000) + string("") + string("consumer") + int32(0)
    dispatched = [
        apis(handlers).dispatch(request_of(ApiKey.JOIN_GROUP, 0, string(group) + rest))
        for group in ("classic", "of-kafka-4")
    ]
    assert dispatched == [Verdict.SERVED, Verdict.QUEUED]
    assert joined == ["classic"]
    assert handlers.dear == [True]
    handlers.work.pop()()
    assert joined == ["classic", "of-kafka-4"]


@pytest.mark.parametrize(
    ("key", "version", "small", "large"),
    [
        (ApiKey.CREATE_TOPICS, 0, 2 * KIB, 2 * KIB + 1),
        (ApiKey.DELETE_TOPICS, 0, 2 * KIB, 2 * KIB + 1),
        (ApiKey.CREATE_PARTITIONS, 0, 2 * KIB, 1 << 20),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 2 * KIB, 1 << 20),
        (ApiKey.DESCRIBE_CONFIGS, 0, 64, 65),
    ],
)
def test_what_waits_for_the_store_a_thousand_times_over_does_so_on_a_thread_of_its_own(
    key: ApiKey, version: int, small: int, large: int
) -> None:
    """It computes in between: eight at once would hold the interpreter's lock from the network threads, and
    as dear work one would keep what only computes waiting for ZooKeeper.
    """
    handlers = Handlers()
    served = apis(handlers)
    for size in (small, large, large):
        assert served.dispatch(request_of(key, version, b"\xff" * size)) is Verdict.QUEUED
    assert handlers.dear == [False]
    assert len(handlers.work) == 1
    assert len(handlers.long) == 2


def test_a_request_without_room_is_handed_over_later_without_being_looked_at_again() -> None:
    handlers = Handlers(full=True)
    request = request_of(ApiKey.LIST_GROUPS, 0, b"")
    served = apis(handlers)
    assert served.dispatch(request) is Verdict.FULL
    assert not request.again()
    handlers.full = False
    assert request.again()
    assert len(handlers.work) == 1
    assert served.stats[ApiKey.LIST_GROUPS].requests == 1


def produce_body(partitions: int) -> bytes:
    one = struct.pack(">ii", 0, -1)
    return b"\xff\xff" + struct.pack(">hii", 1, 1000, 1) + b"\0\1t" + int32(partitions) + one * partitions


def fetch_body(partitions: int) -> bytes:
    one = struct.pack(">iiqqi", 0, -1, 0, 0, 1)
    head = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)
    return head + int32(1) + b"\0\1t" + int32(partitions) + one * partitions + int32(0) + b"\0\0"


@pytest.mark.parametrize(
    ("key", "version", "content"),
    [(ApiKey.PRODUCE, 7, produce_body(1_001)), (ApiKey.FETCH, 11, fetch_body(2_001))],
)
def test_many_partitions_of_a_hot_request_wait_for_a_handler(
    key: ApiKey, version: int, content: bytes
) -> None:
    handlers = Handlers()
    assert apis(handlers).dispatch(request_of(key, version, content)) is Verdict.QUEUED
    assert len(handlers.work) == 1


def test_hot_requests_are_read_up_to_the_bound() -> None:
    assert len(parse_produce_request(memoryview(produce_body(9)), 7, 10).topics[0][1]) == 9
    assert len(parse_fetch_request(memoryview(fetch_body(9)), 11, 10).topics[0][1]) == 9
    with pytest.raises(TooManyElements):
        parse_produce_request(memoryview(produce_body(10)), 7, 10)
    with pytest.raises(TooManyElements):
        parse_fetch_request(memoryview(fetch_body(10)), 11, 10)


@pytest.mark.parametrize("length", [-1, -(1 << 31)])
def test_null_array_makes_no_room_for_more(length: int) -> None:
    """Of topics, and of partitions in a first topic."""
    head = b"\xff\xff" + struct.pack(">hi", 1, 1000)
    for arrays in (int32(length), int32(2) + b"\0\1t" + int32(length) + b"\0\1u" + int32(0)):
        with pytest.raises(ProtocolError, match="null array"):
            parse_produce_request(memoryview(head + arrays), 7, 10)


def test_array_that_announces_more_than_any_request_has_is_refused_at_its_length() -> None:
    with pytest.raises(ProtocolError):
        parse_fetch_request(memoryview(fetch_body(0)[:-10] + int32(1 << 30)), 11, 10)


def test_bounds_are_in_order() -> None:
    for rule in (*RULES.values(), Rule()):
        assert rule.here_elements < rule.most_elements


def test_a_client_is_not_told_why_the_broker_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/data/secret")

    monkeypatch.setattr("broker.server.apis.create_partitions.handle", fail)
    handlers = Handlers()
    content = body(ApiKey.CREATE_PARTITIONS, 3, World())
    request = request_of(ApiKey.CREATE_PARTITIONS, 3, content)
    with structlog.testing.capture_logs() as lines:
        apis(handlers).dispatch(request)
        for work in handlers.work:
            work()
    assert request.payload is not None
    answer = b"".join(bytes(piece) for piece in request.payload if isinstance(piece, bytes))
    assert b"its log has the reason" in answer
    assert b"secret" not in answer
    assert [line["event"] for line in lines] == ["request_failed"]
