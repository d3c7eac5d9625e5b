"""Attacks that once stopped, filled or ended a broker, from outside and whole: a victim is served beside them.

What they took is told by CPU time, memory, answers and the watchdog; no time of an answer is judged.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.primitives import write_uvarint
from broker.record.batch import assemble
from broker.record.header import MAGIC, BatchHeader
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame, stranger
from rig.wait import wait_until
from tests.support.times import NOW_MS
from tests.support.victim import VICTIM, Victim

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

MIB = 1024 * 1024
ZSTD = 4
TOPIC, SET = 2, 0
PARTITIONS = 300
GROUP_BYTES = 16 * MIB
SEGMENT_BYTES = 16 * 1024
# systemd's WatchdogSec of the unit.
WATCHDOG_S = 30.0


class Systemd:
    """Hears what a service tells it, and when."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.alive_s: list[float] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while told := self._socket.recv(4096):
            if b"WATCHDOG=1" in told:
                self.alive_s.append(time.monotonic())

    def longest_silence_s(self, began_s: float) -> float:
        """Between signs of life since then, the last before it and this moment with them."""
        seen = [began_s, *(at for at in self.alive_s if at > began_s), time.monotonic()]
        return max(later - earlier for earlier, later in pairwise(seen))


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Systemd:
    return Systemd(tmp_path_factory.mktemp("notified") / "socket")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, systemd: Systemd) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "landline.group.max.bytes": GROUP_BYTES,
        "log.segment.bytes": SEGMENT_BYTES,
        "log.cleaner.backoff.ms": 200,
        "log.initial.task.delay.ms": 200,
        "log.retention.check.interval.ms": 1000,
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NOTIFY_SOCKET", systemd._socket.getsockname())
        patched.setenv("WATCHDOG_USEC", "2000000")
        running = LandlineStandalone(tmp_path_factory.mktemp("attacked") / "data", config)
    with running:
        with RawClient(HOST, running.port) as client:
            assert client.create_topic(VICTIM).error_code == Errors.NONE
            assert client.create_topic("wide", PARTITIONS).error_code == Errors.NONE
            wait_until(lambda: coordinates(client), what="groups are coordinated")
        yield running
        assert "traceback" not in running.log_text()


@pytest.fixture
def victim(broker: LandlineStandalone) -> Iterator[Victim]:
    with Victim(broker.port) as served:
        yield served
        served.is_served_again()
    wait_until(broker.is_ready)


def coordinates(client: RawClient) -> bool:
    row = {"key_type": 0, "coordinator_keys": ["g"]}
    return bool(client.ask(ApiKey.FIND_COORDINATOR, 4, row).coordinators[0].error_code == Errors.NONE)


def peak_mib(broker: LandlineStandalone) -> float:
    """The most memory that was resident since the last :func:`forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.process.pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def forget_peak(broker: LandlineStandalone) -> float:
    """What is resident now."""
    Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")
    return broker.rss_mb()


# --- one request of a few MiB: no sign of life for 85 s, so that systemd ended the broker


def _empty_names(before: bytes, after: bytes) -> bytes:
    return before + write_uvarint(4 * MIB + 1) + b"\1" * (4 * MIB) + after


EMPTY_NAMES = {
    "keys": (ApiKey.FIND_COORDINATOR, 4, _empty_names(b"\0", b"\0")),
    "groups": (ApiKey.DESCRIBE_GROUPS, 5, _empty_names(b"", b"\0\0")),
}


@pytest.mark.parametrize(("api", "version", "body"), EMPTY_NAMES.values(), ids=EMPTY_NAMES)
def test_four_million_empty_names_leave_the_broker_its_signs_of_life(
    api: ApiKey, version: int, body: bytes, broker: LandlineStandalone, victim: Victim, systemd: Systemd
) -> None:
    before, resident, began_s = broker.cpu_seconds(), forget_peak(broker), time.monotonic()
    with RawClient(HOST, broker.port, timeout_s=200, from_host=stranger()) as hostile:
        hostile.send(request_frame(api, version, body))
        hostile.await_close()
    told = len(systemd.alive_s)
    wait_until(lambda: len(systemd.alive_s) > told, what="a sign of life")
    assert systemd.longest_silence_s(began_s) < WATCHDOG_S
    assert (broker.cpu_seconds() - before).total < 10  # it was 40
    assert peak_mib(broker) - resident < 60  # it was 1,600


# --- pages asked for again and again: each was made anew, of all partitions


def test_pages_are_made_once_a_second_however_many_ask(broker: LandlineStandalone, victim: Victim) -> None:
    began_s, pages = time.monotonic(), []

    def ask() -> None:
        for _ in range(40):
            with RawClient(HOST, broker.http_port) as reader:
                reader.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                pages.append(reader.await_close().partition(b"\r\n\r\n")[2])

    readers = [threading.Thread(target=ask) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(120)
    took_s = time.monotonic() - began_s
    assert len(pages) == 160
    assert all(b"landline" in page for page in pages)
    # The victim's requests are counted in it: no two that were made are alike.
    assert len(set(pages)) <= took_s + 2


# --- a batch of 3 KB that holds 4.8 million records: 3.6 s of CPU each, on all handlers at once


def bomb(count: int) -> bytes:
    """Smallest records with empty keys, compressed a thousand times."""
    header = BatchHeader(0, 0, -1, MAGIC, 0, ZSTD, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    return assemble(header, bytes([12, 0, 0, 0, 0, 1, 0]) * count, 19)


MANY_RECORDS = bomb(32 * MIB // 7)
LOOKED_INTO = {
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "gzip"},
    "times": {"message.timestamp.before.max.ms": "1000000000"},
}


@pytest.mark.parametrize("configs", LOOKED_INTO.values(), ids=LOOKED_INTO)
def test_eight_batches_of_millions_of_records_are_refused_for_little(
    configs: dict[str, str], broker: LandlineStandalone, victim: Victim, request: pytest.FixtureRequest
) -> None:
    prefix = request.node.callspec.id
    assert len(MANY_RECORDS) < 4_000
    with ExitStack() as stack:
        client = stack.enter_context(RawClient(HOST, broker.port))
        peers = [stack.enter_context(RawClient(HOST, broker.port)) for _ in range(8)]
        for number in range(8):
            assert client.create_topic(f"{prefix}-{number}", 1, 1, configs).error_code == Errors.NONE
        before = broker.cpu_seconds()
        for number, peer in enumerate(peers):
            peer.send(_produced(f"{prefix}-{number}", MANY_RECORDS))
        assert client.create_topic(f"{prefix}-beside").error_code == Errors.NONE
        for peer in peers:
            answer = codec.decode(ApiKey.PRODUCE, 7, "response", memoryview(peer.receive_frame())[4:])
            assert answer.responses[0].partition_responses[0].error_code == Errors.MESSAGE_TOO_LARGE
        assert (broker.cpu_seconds() - before).total < 8  # it was 29


def _produced(topic: str, records: bytes) -> bytes:
    row = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    fields = {"acks": 1, "timeout": 30_000, "topic_data": [row], "transactional_id": None}
    return request_frame(ApiKey.PRODUCE, 7, codec.encode(ApiKey.PRODUCE, 7, "request", fields))


# --- as many as are let in, where nobody looks into them, of a topic that is compacted later: 800 MiB


def million() -> bytes:
    """A batch of a million records with the same empty key and no value."""

    def record(delta: int) -> bytes:
        body = b"\0\0" + write_uvarint(2 * delta) + b"\0\1\0"
        return write_uvarint(2 * len(body)) + body

    count = 1_000_000
    header = BatchHeader(0, 0, -1, MAGIC, 0, ZSTD, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    return assemble(header, b"".join(map(record, range(count))), 3)


def test_cleaner_that_meets_a_million_records_in_a_batch_holds_few_of_them(
    broker: LandlineStandalone, victim: Victim
) -> None:
    batch = million()
    with RawClient(HOST, broker.port) as client:
        configs = {
            "cleanup.policy": "delete",
            "max.message.bytes": str(8 * MIB),
            "segment.bytes": str(len(batch) + 4096),
            "min.cleanable.dirty.ratio": "0.0",
        }
        assert client.create_topic("cleaned", 1, 1, configs).error_code == Errors.NONE
        for _ in range(2):
            assert client.produce("cleaned", 0, batch).error_code == Errors.NONE
        resident = forget_peak(broker)
        change = {"name": "cleanup.policy", "config_operation": SET, "value": "compact"}
        row = {"resource_type": TOPIC, "resource_name": "cleaned", "configs": [change]}
        fields = {"resources": [row], "validate_only": False}
        altered = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
        assert altered.responses[0].error_code == Errors.NONE
    wait_until(lambda: "log_compacted" in broker.log_text(), 120, what="the cleaner has been there")
    assert peak_mib(broker) - resident < 100


# --- thousands of connections: 64 KiB for 8 bytes of a request each


def test_connections_that_begin_a_request_take_a_few_kilobytes(
    broker: LandlineStandalone, victim: Victim
) -> None:
    count = 600
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((HOST, broker.port))) for _ in range(count)]
        with RawClient(HOST, broker.port) as client:
            assert client.is_open()
        before = broker.rss_mb()
        for peer in idle:
            peer.sendall(struct.pack(">ii", 64 * 1024, 1))
        with RawClient(HOST, broker.port) as client:
            assert client.is_open()
        assert broker.rss_mb() - before < count * 16 / 1024  # it was 64 KiB each


# --- groups: 17 MiB for a member that said 8 of itself, 2.6 KB for each name, kept for half an hour


def joined(client: RawClient, group: str, metadata: bytes, instance: str | None = "one") -> Any:
    fields = {
        "group_id": group,
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "member_id": "",
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    return client.ask(ApiKey.JOIN_GROUP, 5, fields)


def test_members_that_say_megabytes_are_let_in_up_to_the_bound_and_those_inside_stay(
    broker: LandlineStandalone, victim: Victim
) -> None:
    with RawClient(HOST, broker.port) as client:
        member = joined(client, "inside", b"")
        assert member.error_code == Errors.NONE
        resident, said = broker.rss_mb(), bytes(MIB - 1_000)
        assert joined(client, "huge", bytes(8 * MIB)).error_code != Errors.NONE
        answers = [joined(client, f"fat-{number}", said).error_code for number in range(40)]
        assert answers[0] == Errors.NONE
        assert answers[-1] == Errors.GROUP_MAX_SIZE_REACHED
        names = [joined(client, f"name-{number}", b"", None).error_code for number in range(500)]
        assert Errors.GROUP_MAX_SIZE_REACHED in names
        beat = {
            "group_id": "inside",
            "generation_id": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": "one",
        }
        assert client.ask(ApiKey.HEARTBEAT, 3, beat).error_code in {
            Errors.NONE,
            Errors.REBALANCE_IN_PROGRESS,
        }
        assert broker.rss_mb() - resident < 3 * GROUP_BYTES / MIB
