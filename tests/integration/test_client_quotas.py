"""Client quotas with real clients: rates, topic changes, connections, and that they outlive a restart."""

from __future__ import annotations

import os
import re
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import last_for, wait_until
from rig.wire import receive_frame
from tests.support.logs import batch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RATE = 1_000_000
SECONDS = 10
_TRIES = 3
VALUE = os.urandom(4_000)
# Kafka's eleven samples let ten seconds' worth through at once and then nearly nothing: two make it smooth.
CONFIG: dict[str, object] = {"quota.window.num": 2, "controller.quota.window.num": 2}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quotas") / "data"


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[LandlineStandalone]:
    with LandlineStandalone(data_dir, CONFIG) as running:
        yield running
        assert not re.search(r"traceback=|processor_turn_failed", running.log_text())


def alter(
    broker: LandlineStandalone, entity: Mapping[str, str | None], values: Mapping[str, float | None]
) -> None:
    """Sets quotas, or removes those that are None, and waits until the broker has taken up all changes."""
    before = changes_taken_up(broker)
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    entities = [{"entity_type": type_, "entity_name": name} for type_, name in entity.items()]
    fields = {"entries": [{"entity": entities, "ops": ops}], "validate_only": False}
    with RawClient(HOST, broker.port) as client:
        (entry,) = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, fields).entries
    assert entry.error_code == Errors.NONE, entry
    wait_until(lambda: changes_taken_up(broker) >= before + len(values), 60)


@contextmanager
def limited(
    broker: LandlineStandalone, entity: Mapping[str, str | None], quotas: Mapping[str, float]
) -> Iterator[None]:
    """Sets quotas, and removes them afterwards, so that a test that fails leaves none to the next."""
    alter(broker, entity, quotas)
    try:
        yield
    finally:
        alter(broker, entity, dict.fromkeys(quotas))


def changes_taken_up(broker: LandlineStandalone) -> int:
    return broker.log_text().count("quota_changed")


def described(broker: LandlineStandalone) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    with RawClient(HOST, broker.port) as client:
        answer = client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    assert answer.error_code == Errors.NONE
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def metric(broker: LandlineStandalone, name: str, label: str = "") -> float:
    """The value of the metric's first line with the label; 0 if there is none."""
    with urlopen(f"{broker.http_url}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name) and label in line:
                return float(line.rpartition(" ")[2])
    return 0.0


def bytes_in(seconds: float, step: Callable[[], int]) -> int:
    """What the steps add up to in that time."""
    until, total = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        total += step()
    return total


def test_a_producer_gets_its_rate_and_no_more(broker: LandlineStandalone) -> None:
    with limited(broker, {"client-id": "writer"}, {"producer_byte_rate": RATE}):
        arrived = [0]
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": "writer",
                "batch.size": 16_000,
                "linger.ms": 5,
                "queue.buffering.max.messages": 200,
            }
        )

        def step() -> int:
            before = arrived[0]
            while len(producer) < 100:
                producer.produce("written", VALUE, on_delivery=count)
            producer.poll(0.02)
            return arrived[0] - before

        def count(error: object, message: Any) -> None:
            assert error is None
            arrived[0] += len(message.value())

        bytes_in(2, step)
        rate = bytes_in(SECONDS, step) / SECONDS
        assert rate == pytest.approx(RATE, rel=0.1)
        assert metric(broker, "kafka_server_produce_byterate", 'client_id="writer"') > RATE / 2
        assert metric(broker, "kafka_server_produce_throttletime", 'client_id="writer"') > 0
    assert producer.flush(60) == 0


def test_sixty_connections_of_a_user_write_no_more_than_their_users_quota(broker: LandlineStandalone) -> None:
    """Each sends again as soon as it may. By Kafka's rule alone they get twice the quota."""
    with RawClient(HOST, broker.port) as client:
        client.create_topic("crowded")
    with limited(broker, {"user": "ANONYMOUS"}, {"producer_byte_rate": RATE}):
        records = bytes(batch(os.urandom(100_000)))
        data = {"topic_data": [{"name": "crowded", "partition_data": [{"index": 0, "records": records}]}]}
        fields = {"transactional_id": None, "acks": 1, "timeout": 10_000, **data}
        body = codec.encode(ApiKey.PRODUCE, 7, "request", fields)
        frame = request_frame(ApiKey.PRODUCE, 7, body)
        with ExitStack() as stack, selectors.DefaultSelector() as ready:
            for _ in range(60):
                sock = stack.enter_context(socket.create_connection((HOST, broker.port), 30))
                ready.register(sock, selectors.EVENT_READ)
                sock.sendall(frame)

            def step() -> int:
                answered = [key.fileobj for key, _ in ready.select(0.02)]
                for sock in answered:
                    assert isinstance(sock, socket.socket)
                    receive_frame(sock)
                    sock.sendall(frame)
                return len(answered) * len(frame)

            bytes_in(8, step)  # the first requests of all are served at once: 6 s' worth
            rate = bytes_in(SECONDS, step) / SECONDS
        assert rate == pytest.approx(RATE, rel=0.2)


def test_a_consumer_gets_its_rate_and_no_more(broker: LandlineStandalone) -> None:
    # A batch of one record each, ten in a fetch: of a batch that does not fit, the bytes are sent and counted too.
    size = len(batch(VALUE))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for _ in range((_TRIES * SECONDS + 5) * RATE // size):
        producer.produce("read", VALUE)
        producer.poll(0)
    assert producer.flush(60) == 0
    with limited(broker, {"user": "ANONYMOUS", "client-id": None}, {"consumer_byte_rate": RATE}):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": "reader",
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 41_000,
            }
        )
        consumer.subscribe(["read"])

        def step() -> int:
            return sum(size for message in consumer.consume(10, 0.02) if not message.error())

        wait_until(lambda: step() > 0, 60)
        bytes_in(2, step)
        # A client that gets no processor for seconds asks later than it may, and loses what it did not ask for.
        rates = [bytes_in(SECONDS, step) / SECONDS]
        while rates[-1] < 0.9 * RATE and len(rates) < _TRIES:
            rates.append(bytes_in(SECONDS, step) / SECONDS)
        assert rates[-1] >= 0.9 * RATE, rates
        assert max(rates) <= 1.1 * RATE
        assert metric(broker, "kafka_server_fetch_throttletime", 'client_id="reader"') > 0
        consumer.close()


def test_a_client_that_uses_too_much_of_a_thread_is_held_back(broker: LandlineStandalone) -> None:
    asked = {"topics": [{"name": f"t{number}"} for number in range(100)], "allow_auto_topic_creation": False}

    def requests(seconds: float) -> int:
        with RawClient(HOST, broker.port) as client:
            return bytes_in(seconds, lambda: bool(client.ask(ApiKey.METADATA, 4, asked)))

    free = requests(2)
    with limited(broker, {"user": None}, {"request_percentage": 1}):
        wait_until(lambda: requests(0.5) < free / 16, 30)
        assert metric(broker, "kafka_server_request_queuesize") > 0
        held = requests(3)
        assert held < free / 4


def test_a_throttled_answer_comes_at_once_and_the_next_request_waits(broker: LandlineStandalone) -> None:
    # A millionth of a thread: no code answers so quickly that two requests in two seconds fit.
    quota = {"request_percentage": 0.0001}
    with limited(broker, {"client-id": None}, quota), RawClient(HOST, broker.port) as client:
        fields = {"topics": None, "allow_auto_topic_creation": False}
        wait_until(lambda: client.ask(ApiKey.METADATA, 4, fields).throttle_time.total_seconds() > 0)
        began = time.monotonic()
        client.ask(ApiKey.METADATA, 4, fields)
        assert time.monotonic() - began > 0.5, "quota.window.size.seconds bounds it to a second"
        throttle_s = client.ask(ApiKey.METADATA, 4, fields).throttle_time.total_seconds()
        assert 0 < throttle_s <= 1


def test_topic_changes_above_their_rate_are_refused_or_throttled(broker: LandlineStandalone) -> None:
    with limited(broker, {"user": "ANONYMOUS"}, {"controller_mutation_rate": 2.0}):
        wait_until(lambda: _is_limited(broker), 30)
        with RawClient(HOST, broker.port) as client:

            def create(name: str, version: int) -> tuple[Errors, float]:
                row = {
                    "name": name,
                    "num_partitions": 4,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                answer = client.ask(ApiKey.CREATE_TOPICS, version, {"topics": [row], "timeout": 10_000})
                return Errors(answer.topics[0].error_code), answer.throttle_time.total_seconds()

            last_for(6)  # the bucket is full: four partitions
            assert create("first", 7) == (Errors.NONE, 0)
            assert create("second", 7) == (Errors.NONE, 0), "the burst may end below zero"
            error, throttle_s = create("third", 7)
            assert error is Errors.THROTTLING_QUOTA_EXCEEDED
            assert 0 < throttle_s <= 2
            error, throttle_s = create("fourth", 5)
            assert error is Errors.NONE, "an old client is not refused"
            assert throttle_s > 0
            many = {
                "topics": [{"name": f"asked-for-{n}"} for n in range(80)],
                "allow_auto_topic_creation": True,
            }
            assert client.ask(ApiKey.METADATA, 4, many).throttle_time.total_seconds() > 0


def _is_limited(broker: LandlineStandalone) -> bool:
    with RawClient(HOST, broker.port) as client:
        row = {
            "name": f"probe{time.monotonic_ns()}",
            "num_partitions": 4,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        answer = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [row], "timeout": 10_000})
        return bool(answer.topics[0].error_code == Errors.THROTTLING_QUOTA_EXCEEDED)


def test_an_address_that_connects_too_often_is_shut_out_for_a_while(broker: LandlineStandalone) -> None:
    with limited(broker, {"ip": "127.0.0.7"}, {"connection_creation_rate": 2}):

        def open_after(address: str, seconds: float) -> bool:
            with socket.create_connection((HOST, broker.port), 10, (address, 0)) as sock:
                sock.settimeout(seconds)
                sock.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1))
                try:
                    return bool(sock.recv(1))
                except TimeoutError:
                    return True
                except ConnectionResetError:
                    return False

        wait_until(lambda: not all(open_after("127.0.0.7", 5) for _ in range(5)), 30)
        assert all(open_after("127.0.0.8", 5) for _ in range(20))
        assert metric(broker, "kafka_server_socketservermetrics_connectionacceptrate", "127.0.0.7") > 0


def test_quotas_that_exist_at_start_are_in_force(data_dir: Path, broker: LandlineStandalone) -> None:
    del broker  # its directory is taken: this one has its own
    directory = data_dir.with_name("again")
    with LandlineStandalone(directory, CONFIG) as first:
        alter(first, {"user": "a b/c", "client-id": "*"}, {"producer_byte_rate": 1_024})
        alter(first, {"ip": None}, {"connection_creation_rate": 1_000})
        alter(first, {"client-id": None}, {"request_percentage": 0.001})
        known = described(first)
        assert known == {
            (("user", "a b/c"), ("client-id", "*")): {"producer_byte_rate": 1_024},
            (("client-id", None),): {"request_percentage": 0.001},
            (("ip", None),): {"connection_creation_rate": 1_000},
        }
    with LandlineStandalone(directory, CONFIG) as again, RawClient(HOST, again.port) as client:
        asked = {"topics": None, "allow_auto_topic_creation": False}
        throttle_times = [client.ask(ApiKey.METADATA, 4, asked).throttle_time for _ in range(2)]
        assert throttle_times[-1].total_seconds() > 0
        steps = again.log_text().rpartition("broker_started")[2]
        assert steps.index("DynamicConfigManager=") < steps.index("SocketServer="), (
            "before clients are served"
        )
