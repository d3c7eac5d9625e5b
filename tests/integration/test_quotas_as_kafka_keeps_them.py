"""Clients get the rates from Landline that Apache Kafka 3.9.1 gives them, within 10 %.

All clients of both brokers run at the same time, so both brokers have the same machine. Each client asks as
often as it is let. A machine that has other work may hold back a broker more than the quota does, so the rates
are looked at until they agree.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Self

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.framing import response_body_offset
from rig.brokers import HOST
from rig.raw_client import RawClient, request_frame
from rig.wait import last_for, wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.secured import ADMIN, SecuredBroker, secured_pair
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
WINDOWS = 4
# With Kafka's eleven windows a client gets ten seconds' worth at once, and is then held for as long.
CONFIG = {"quota.window.num": WINDOWS, "controller.quota.window.num": WINDOWS}
WARM_UP_S, MEASURED_S, PATIENCE_S = 2.0 * WINDOWS, 20.0, 120.0
RATE, VALUE = 500_000, bytes(50_000)
STRANGER = "127.0.0.9"
_numbers = count()


@dataclass(frozen=True)
class Quota:
    """A quota, for whom it is, and ``client``, which returns one step of a client: the step returns what it used.
    A client is to get ``expected`` in a second.
    """

    key: str
    value: float
    client: Callable[[SecuredBroker, ExitStack], Callable[[], float]]
    entity: Mapping[str, str]
    expected: float


def connection(broker: SecuredBroker, stack: ExitStack) -> RawClient:
    return stack.enter_context(broker.login(ADMIN))


def asked_as(client: RawClient, client_id: str, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
    """As ``RawClient.ask``, with a client id of its own: the quotas are of client ids."""
    body = codec.encode(key, version, "request", fields)
    client.send(request_frame(key, version, body, client_id=client_id))
    frame = memoryview(client.receive_frame())
    return codec.decode(key, version, "response", frame[response_body_offset(key, version, frame) :])


def producer(broker: SecuredBroker, stack: ExitStack) -> Callable[[], float]:
    client = connection(broker, stack)
    row = {"name": "written", "partition_data": [{"index": 0, "records": some_records(VALUE)}]}
    fields = {"acks": 1, "timeout": 10_000, "topic_data": [row]}

    def step() -> float:
        answer = asked_as(client, "writer", ApiKey.PRODUCE, 8, fields)
        assert answer.responses[0].partition_responses[0].error_code == Errors.NONE
        return len(VALUE)

    return step


def consumer(broker: SecuredBroker, stack: ExitStack) -> Callable[[], float]:
    client = connection(broker, stack)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": len(VALUE)}
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "topics": [{"topic": "read", "partitions": [wanted]}],
        "forgotten_topics_data": [],
    }

    def step() -> float:
        """A throttled answer has no partitions."""
        topics = asked_as(client, "reader", ApiKey.FETCH, 11, fields).responses
        partitions = [partition for topic in topics for partition in topic.partitions]
        assert all(partition.error_code == Errors.NONE for partition in partitions)
        return sum(len(partition.records or b"") for partition in partitions)

    return step


def asker(broker: SecuredBroker, stack: ExitStack) -> Callable[[], float]:
    client = connection(broker, stack)

    def step() -> float:
        asked_as(client, "asker", ApiKey.LIST_GROUPS, 2, {})
        return 1

    return step


def topic_maker(broker: SecuredBroker, stack: ExitStack) -> Callable[[], float]:
    client = connection(broker, stack)

    def step() -> float:
        row = {
            "name": f"made-{next(_numbers)}",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        answer = asked_as(client, "maker", ApiKey.CREATE_TOPICS, 7, {"topics": [row], "timeout": 10_000})
        error = answer.topics[0].error_code
        assert error in {Errors.NONE, Errors.THROTTLING_QUOTA_EXCEEDED}
        return float(error == Errors.NONE)

    return step


def comer(broker: SecuredBroker, stack: ExitStack) -> Callable[[], float]:
    """Connects fifty times a second, whatever becomes of the connections; counts those that are answered."""
    waiting = stack.enter_context(selectors.DefaultSelector())
    stack.callback(lambda: [key.fileobj.close() for key in waiting.get_map().values()])  # type: ignore[union-attr]
    versions = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)

    def step() -> float:
        last_for(0.02)
        sock = socket.create_connection((HOST, broker.sasl_port), 10, (STRANGER, 0))
        sock.sendall(versions)
        waiting.register(sock, selectors.EVENT_READ)
        return float(sum(is_answered(key) for key, _ in waiting.select(0)))

    def is_answered(key: selectors.SelectorKey) -> bool:
        waiting.unregister(key.fileobj)
        with key.fileobj as sock:  # type: ignore[union-attr]
            try:
                return bool(sock.recv(1))
            except ConnectionError:
                return False

    return step


QUOTAS = [
    Quota("producer_byte_rate", RATE, producer, {"client-id": "writer"}, RATE),
    Quota("consumer_byte_rate", RATE, consumer, {"client-id": "reader"}, RATE),
    # So little that each request is too much: the next one waits for a whole window.
    Quota("request_percentage", 0.0001, asker, {"client-id": "asker"}, 1.0),
    Quota("controller_mutation_rate", 1, topic_maker, {"client-id": "maker"}, 1),
    Quota("connection_creation_rate", 10, comer, {"ip": STRANGER}, 10),
]


def set_quota(broker: SecuredBroker, quota: Quota) -> None:
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in quota.entity.items()]
    op = {"key": quota.key, "value": quota.value, "remove": False}
    with broker.login(ADMIN) as admin:
        asked = {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False}
        (entry,) = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, asked).entries
    assert entry.error_code == Errors.NONE, entry.error_message


def fill(broker: SecuredBroker) -> None:
    with broker.login(ADMIN) as admin:
        for topic in ("read", "written"):
            assert admin.create_topic(topic).error_code == Errors.NONE
            wait_until(lambda at=topic: admin.produce(at, 0, some_records(VALUE)).error_code == Errors.NONE)


class Client:
    """A client of one quota at one broker, on a thread of its own, and what it used of the quota when."""

    def __init__(self, quota: Quota, broker: SecuredBroker) -> None:
        self._quota = quota
        self._broker = broker
        self._used: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with ExitStack() as stack:
            step = self._quota.client(self._broker, stack)
            warm = time.monotonic() + WARM_UP_S
            while not self._over.is_set():
                used, now = step(), time.monotonic()
                if now > warm:
                    self._used.append((now, used))

    def rate(self) -> float:
        """What it used in a second, between the ends of two steps ``MEASURED_S`` apart; 0 before."""
        used = list(self._used)
        end, _ = used[-1]
        first = bisect(used, (end - MEASURED_S,)) - 1
        return sum(each for _, each in used[first + 1 :]) / (end - used[first][0]) if first >= 0 else 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)


Clients = dict[str, tuple[Client, Client]]


@pytest.fixture(scope="module")
def clients(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """One at Kafka and one at Landline, for each quota; all run together."""
    with ExitStack() as stack:
        pair = stack.enter_context(secured_pair(zookeeper, tmp_path_factory.mktemp("quotas"), CONFIG))
        for broker in pair:
            for quota in QUOTAS:
                set_quota(broker, quota)
            fill(broker)
        made = {quota.key: pair.each(partial(Client, quota)) for quota in QUOTAS}
        for both in made.values():
            for client in both:
                stack.enter_context(client)
        yield made


@pytest.mark.parametrize("quota", QUOTAS, ids=lambda quota: quota.key)
def test_a_client_gets_what_kafka_gives_it(clients: Clients, quota: Quota) -> None:
    rates = [0.0, 0.0]

    def agree() -> bool:
        rates[:] = kafka, landline = [client.rate() for client in clients[quota.key]]
        binds = kafka == pytest.approx(quota.expected, rel=0.2)
        return binds and 0.9 <= landline / kafka <= 1.1

    def told() -> str:
        return f"{quota.key}={quota.value}: Kafka gives {rates[0]:.2f}, Landline {rates[1]:.2f}: the same"

    wait_until(agree, PATIENCE_S, 0.5, told)
    print(told())
