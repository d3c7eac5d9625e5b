"""However long a client says that it will wait, its time-out ends soon: what is cancelled keeps a slot until then."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.replication.delayed_fetch import FetchParams
from broker.server.access import Access
from broker.server.apis import fetch, produce
from broker.server.fetch_sessions import FetchContext
from broker.server.quotas import QuotaManagers

INT32_MAX = (1 << 31) - 1
# The timer keeps some 300 bytes for every 10 ms in which a cancelled entry was to end: 9 MB at most.
FIVE_MINUTES_MS = 300_000


class Broker:
    """What Produce and Fetch ask of the context; it notes for how long each would wait."""

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.news: list[object] = []
        self.access: Access | None = None
        self.replica_manager = self
        self.quotas = QuotaManagers()
        self.config = SimpleNamespace(int=lambda _key: 1 << 20)
        self.metadata_cache = SimpleNamespace(contains_partition=lambda _partition: False)
        self.fetch_sessions = SimpleNamespace(begin=lambda _asked, wanted, _owner: FetchContext(wanted))

    def partition(self, _topic_partition: object) -> None:
        return None

    local_log = partition

    def absence(self, _topic_partition: object) -> KafkaError:
        return KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)

    def append_records(self, *, timeout_ms: int, **_more: object) -> None:
        self.waits.append(timeout_ms)

    def fetch(self, params: FetchParams, _entries: object, _answer: object, news: object) -> None:
        self.waits.append(params.max_wait_ms)
        self.news.append(news)


def produced(wait_ms: int) -> dict[str, Any]:
    return {"transactional_id": None, "acks": -1, "timeout": wait_ms, "topic_data": []}


def fetched(wait_ms: int) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


@pytest.mark.parametrize(("wait_ms", "waits_ms"), [(1000, 1000), (INT32_MAX, FIVE_MINUTES_MS)])
@pytest.mark.parametrize(
    ("handle", "key", "version", "asked"),
    [(produce.handle, ApiKey.PRODUCE, 7, produced), (fetch.handle, ApiKey.FETCH, 11, fetched)],
    ids=["produce", "fetch"],
)
def test_no_request_waits_longer_than_five_minutes(
    handle: Any, key: ApiKey, version: int, asked: Any, wait_ms: int, waits_ms: int
) -> None:
    broker = Broker()
    request = requested(key, version, asked(wait_ms))
    assert handle(request, broker) is Verdict.SERVED
    assert broker.waits == [waits_ms]


def requested(key: ApiKey, version: int, fields: dict[str, Any], session_ends_ns: int = 0) -> Request:
    body = memoryview(codec.encode(key, version, "request", fields))
    info = ConnectionInfo("1", "10.0.0.1", "CLIENT", session_ends_ns=session_ends_ns)
    return Request(key, version, 7, "c", body, info, 0, lambda _request: None)


@pytest.mark.parametrize(("left_ms", "longest_ms"), [(2_000, 2_000), (-5, 0)])
def test_a_fetch_waits_no_longer_than_its_sasl_session_lasts(left_ms: int, longest_ms: int) -> None:
    broker = Broker()
    ends_ns = time.monotonic_ns() + left_ms * 1_000_000
    fetch.handle(requested(ApiKey.FETCH, 11, fetched(60_000), ends_ns), broker)  # type: ignore[arg-type]
    assert broker.waits[0] <= longest_ms
