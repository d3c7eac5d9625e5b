"""Requests that only brokers send: brokers have handlers of their own, all others are looked up apart from them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from bench.guard.smallest import FOR_BROKERS
from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.server.apis.table import Apis
from broker.server.broker_peers import BrokerPeers, Speaker, Trust
from broker.server.quotas import QuotaManagers
from tests.support.clocks import ManualClock
from tests.support.contexts import context_of
from tests.support.group_fakes import Harness
from tests.support.valid_requests import World, body

BROKER, STRANGER = "10.0.0.1", "10.0.0.9"
OF_BROKERS = sorted(FOR_BROKERS)


@dataclass
class Lane:
    """Where work is handed to; ``full``: it takes none."""

    full: bool = False
    work: list[Callable[[], None]] = field(default_factory=list)

    def submit(self, work: Callable[[], None], request: Request | None = None, *, dear: bool = False) -> bool:
        if not self.full:
            self.work.append(work)
        return not self.full

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


class Cluster:
    """The part of the context that a dispatch needs, with one registered broker."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clients, self.brokers, self.strangers = Lane(), Lane(), Lane()
        self.submit, self.submit_of_broker = self.clients.submit, self.brokers.submit
        self.submit_of_stranger = self.strangers.submit
        self.submit_long = self.clients.submit
        self.hosts = {BROKER}
        self.access = None
        self.reads = 0
        self.fails = False
        self.peers = BrokerPeers(
            Trust.REGISTERED,
            "BROKER",
            self._registered,
            self.clock,
            resolve=lambda host: [host],
            pause=lambda _s: None,
        )
        self.quotas = QuotaManagers()
        self.group_coordinator = Harness().coordinator
        self.apis = Apis(context_of(self))

    def _registered(self) -> list[Speaker]:
        self.reads += 1
        if self.fails:
            raise ConnectionError("the store is away")
        return [Speaker(frozenset({host})) for host in self.hosts]

    def ask(self, key: ApiKey, address: str, *, padding: int = 0) -> tuple[Request, Verdict]:
        version = APIS[key].max_version
        content = body(key, version, World()) + bytes(padding)
        return self.send(key, version, content, address)

    def send(self, key: ApiKey, version: int, content: bytes, address: str) -> tuple[Request, Verdict]:
        info = ConnectionInfo("1", address, "CLIENT")
        request = Request(key, version, 7, "c", memoryview(content), info, 0, lambda _request: None)
        return request, self.apis.dispatch(request)


def error_of(request: Request) -> int:
    assert request.payload is not None
    answer = b"".join(piece for piece in request.payload if isinstance(piece, bytes))
    start = 9 if request.api_version >= APIS[request.api_key].flexible_from else 8
    decoded = codec.decode(request.api_key, request.api_version, "response", answer[start:])
    return int(decoded.error_code.value)


@pytest.mark.parametrize("key", OF_BROKERS)
def test_what_a_stranger_asks_never_comes_to_the_handlers_of_brokers(key: ApiKey) -> None:
    cluster = Cluster()
    request, verdict = cluster.ask(key, STRANGER)
    assert verdict is Verdict.QUEUED
    assert not cluster.brokers.work
    assert not cluster.clients.work
    cluster.strangers.run()
    assert error_of(request) == Errors.CLUSTER_AUTHORIZATION_FAILED
    assert not cluster.brokers.work


@pytest.mark.parametrize("key", OF_BROKERS)
def test_what_a_known_broker_asks_goes_to_their_handlers_without_a_look_at_the_store(key: ApiKey) -> None:
    cluster = Cluster()
    cluster.peers.refresh()
    cluster.strangers.full = cluster.clients.full = True
    _, verdict = cluster.ask(key, BROKER)
    assert verdict is Verdict.QUEUED
    assert len(cluster.brokers.work) == 1
    assert cluster.reads == 1


@pytest.mark.parametrize("key", OF_BROKERS)
def test_the_first_request_of_a_broker_that_has_just_registered_is_served(key: ApiKey) -> None:
    cluster = Cluster()
    cluster.peers.refresh()
    cluster.hosts.add("10.0.0.2")
    request, verdict = cluster.ask(key, "10.0.0.2")
    assert verdict is Verdict.QUEUED
    assert len(request.body) > 0
    cluster.strangers.run()
    assert not request.done
    assert len(cluster.brokers.work) == 1


def test_a_stranger_that_was_just_refused_is_answered_at_once_and_nothing_of_it_is_kept() -> None:
    cluster = Cluster()
    cluster.ask(ApiKey.STOP_REPLICA, STRANGER)
    cluster.strangers.run()
    with capture_logs() as lines:
        for _ in range(100):
            request, verdict = cluster.ask(ApiKey.STOP_REPLICA, STRANGER, padding=1 << 16)
            assert verdict is Verdict.SERVED
            assert error_of(request) == Errors.CLUSTER_AUTHORIZATION_FAILED
    assert not cluster.strangers.work
    assert cluster.reads == 1
    assert len(lines) <= 1


def test_a_large_request_of_who_is_unknown_is_not_copied_and_asked_for_again_when_it_is_a_brokers() -> None:
    cluster = Cluster()
    with capture_logs() as lines:
        request, verdict = cluster.ask(ApiKey.UPDATE_METADATA, BROKER, padding=1 << 20)
        assert verdict is Verdict.QUEUED
        assert len(request.body) == 0
        cluster.strangers.run()
    assert request.done
    assert request.payload is None, "no answer: a controller sends it again"
    assert [line["event"] for line in lines] == ["broker_request_put_off"]
    _, verdict = cluster.ask(ApiKey.UPDATE_METADATA, BROKER, padding=1 << 20)
    assert verdict is Verdict.QUEUED
    assert len(cluster.brokers.work) == 1


def test_where_no_more_can_be_looked_up_or_the_store_is_away_nobody_is_told_that_it_was_refused() -> None:
    cluster = Cluster()
    cluster.strangers.full = True
    request, verdict = cluster.ask(ApiKey.LEADER_AND_ISR, "10.0.0.3")
    assert verdict is Verdict.SERVED
    assert request.done
    assert request.payload is None
    cluster.strangers.full, cluster.fails = False, True
    request, _ = cluster.ask(ApiKey.LEADER_AND_ISR, "10.0.0.4")
    cluster.strangers.run()
    assert request.done
    assert request.payload is None


def test_who_has_gone_is_not_looked_up() -> None:
    cluster = Cluster()
    request, _ = cluster.ask(ApiKey.STOP_REPLICA, STRANGER)
    request.connection.gone = True
    cluster.strangers.run()
    assert cluster.reads == 0


def fetch_of_replica() -> bytes:
    return struct.pack(">iiiibii", 3, 0, 1, 1, 0, 0, -1) + struct.pack(">ii", 0, 0) + b"\0\0"


def offsets_of_replica() -> bytes:
    return codec.encode(
        ApiKey.LIST_OFFSETS,
        4,
        "request",
        {
            "replica_id": 3,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    )


@pytest.mark.parametrize(
    ("key", "version", "content"),
    [(ApiKey.FETCH, 11, fetch_of_replica()), (ApiKey.LIST_OFFSETS, 4, offsets_of_replica())],
)
def test_a_follower_that_is_unknown_is_looked_up_there_too_and_then_served_by_clients_handlers(
    key: ApiKey, version: int, content: bytes
) -> None:
    cluster = Cluster()
    request, _ = cluster.send(key, version, content, BROKER)
    assert cluster.reads == 0
    assert not request.done
    assert not cluster.clients.work
    cluster.strangers.run()
    assert cluster.reads == 1
    assert len(cluster.clients.work) == 1


def test_offsets_of_many_partitions_are_not_kept_for_a_follower_that_is_unknown() -> None:
    cluster = Cluster()
    rows = [{"partition_index": index, "timestamp": -1} for index in range(1_001)]
    asked = {"replica_id": 3, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
    request, _ = cluster.send(
        ApiKey.LIST_OFFSETS, 4, codec.encode(ApiKey.LIST_OFFSETS, 4, "request", asked), BROKER
    )
    cluster.clients.run()  # where it is decoded
    assert not request.done
    cluster.strangers.run()
    assert request.done
    assert request.payload is None
    assert not cluster.clients.work


def test_a_fetch_of_a_replica_from_a_stranger_is_refused_and_the_next_one_at_once() -> None:
    cluster = Cluster()
    request, _ = cluster.send(ApiKey.FETCH, 11, fetch_of_replica(), STRANGER)
    cluster.strangers.run()
    assert request.done
    request, verdict = cluster.send(ApiKey.FETCH, 11, fetch_of_replica(), STRANGER)
    assert verdict is Verdict.SERVED
    assert request.done
    assert not cluster.strangers.work
    assert cluster.reads == 1


@pytest.mark.parametrize("key", [*OF_BROKERS, ApiKey.FETCH])
def test_what_a_stranger_asks_counts_for_its_quota(key: ApiKey) -> None:
    cluster = Cluster()
    cluster.quotas.apply("users/ANONYMOUS", {"request_percentage": "0.0000001"})
    if key is ApiKey.FETCH:
        request, _ = cluster.send(key, 11, fetch_of_replica(), STRANGER)
    else:
        request, _ = cluster.ask(key, STRANGER)
    cluster.strangers.run()
    assert request.done
    assert request.connection.throttled_until_ns > 0


def test_who_is_not_authenticated_yet_uses_nobodys_quota() -> None:
    """ApiVersions is all that it may ask. Kafka's authenticator answers it without a quota."""
    cluster = Cluster()
    cluster.quotas.apply("users/ANONYMOUS", {"request_percentage": "0.0000001"})
    for is_unproved in (True, False):
        info = ConnectionInfo("1", STRANGER, "SASL", is_unproved=is_unproved)
        request = Request(ApiKey.API_VERSIONS, 0, 7, "c", memoryview(b""), info, 0, lambda _request: None)
        cluster.apis.dispatch(request)
        assert request.done
        assert (info.throttled_until_ns == 0) is is_unproved
