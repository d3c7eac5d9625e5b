"""What is fuzzed: each decoder with the errors that it may answer with, and inputs to begin from.

A target that raises anything else, ends the process, takes more memory or time than the engine allows it has
a defect. Files are read from memory, so that nothing here waits for a disk.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from broker.config.problems import ConfigError
from broker.config.properties import parse_properties
from broker.coordinator.group import records as group_records
from broker.coordinator.group.records import MalformedRecord
from broker.log.checkpoints import CheckpointError, OffsetCheckpoint
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.producers.producer_snapshot import SnapshotError, read_snapshot
from broker.log.segments.batch_walk import DamagedError, Extent, next_sound, walk
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.fetch_messages import parse_fetch_response
from broker.protocol.fetch_requests import parse_fetch_request
from broker.protocol.framing import parse_request_header
from broker.protocol.produce_messages import parse_produce_request
from broker.record.compression import CompressionError, compress, decompress
from broker.record.header import iter_batches
from broker.record.records import RecordFormatError, decode_records
from broker.record.records import walk as walk_records
from broker.server.http.http_connections import HttpConnection
from broker.server.http.http_endpoint import REQUEST_TIMEOUT_S
from broker.server.http.http_handler import serve_connection
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from rig.raw_client import request_frame
from tests.support.valid_requests import ALL_VERSIONS, World, body, some_records

_MOST_INFLATED = 1 << 20
_CODECS = (1, 2, 3, 4)
_TP = TopicPartition("topic", 0)


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` reads one input and may raise ``refusals``; ``seeds`` are inputs that it takes."""

    name: str
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]

    def try_(self, data: bytes) -> None:
        """Raises what the decoder should not have raised."""
        with contextlib.suppress(*self.refusals):
            self.run(data)


def _request(data: bytes) -> None:
    frame = memoryview(data)
    header = parse_request_header(frame)
    rest = frame[header.body_offset :]
    if not APIS[header.api_key].min_version <= header.api_version <= APIS[header.api_key].max_version:
        return
    match header.api_key:
        case ApiKey.PRODUCE:
            parse_produce_request(rest, header.api_version)
        case ApiKey.FETCH:
            parse_fetch_request(rest, header.api_version)
        case _:
            codec.decode(header.api_key, header.api_version, "request", rest)


def _request_seeds() -> Sequence[bytes]:
    return [request_frame(key, version, body(key, version, World()))[4:] for key, version in ALL_VERSIONS]


# What brokers, controllers and coordinators are asked for by this broker.
_ASKED: Sequence[tuple[ApiKey, int]] = [
    pair
    for pair in ALL_VERSIONS
    if pair[0]
    in {
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION,
        ApiKey.API_VERSIONS,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.CREATE_TOPICS,
        ApiKey.LEADER_AND_ISR,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
    }
]


def _response(data: bytes) -> None:
    if not data:
        return
    if data[0] >= len(_ASKED):
        parse_fetch_response(memoryview(data)[1:])
        return
    codec.decode(*_ASKED[data[0]], "response", memoryview(data)[1:])


def _response_seeds() -> Sequence[bytes]:
    return [bytes([number]) + bytes(40) for number in range(len(_ASKED) + 1)]


def _records(data: bytes) -> None:
    count = data[0] if data else 0
    walk_records(data[1:], count, 0)
    for _ in decode_records(data[1:], count, 0, 0):
        pass


def _record_seeds() -> Sequence[bytes]:
    batch = some_records(b"one", b"two")
    header = next(iter_batches(batch))
    return [bytes([header.record_count]) + batch[61:]]


def _compressed(data: bytes) -> None:
    if data:
        inflated = decompress(_CODECS[data[0] % len(_CODECS)], data[1:], _MOST_INFLATED)
        assert len(inflated) <= _MOST_INFLATED, "more came out than was asked for"


def _compressed_seeds() -> Sequence[bytes]:
    texts = (b"", b"a", b"landline" * 100)
    return [
        bytes([index]) + bytes(compress(codec_id, t)) for index, codec_id in enumerate(_CODECS) for t in texts
    ]


def _segment(data: bytes) -> None:
    """A whole segment: damage is told, and what is found behind it lies behind it."""
    with _file(data) as path:
        fd = os.open(path, os.O_RDONLY)
        try:
            extent, position = Extent(fd, path, len(data), 0, 1 << 40), 0
            for _ in range(8):
                damage = _damage_from(extent, position)
                found = next_sound(extent, damage) if damage else None
                if damage is None or found is None:
                    return
                assert found[0] > damage.position, "what is found lies before the damage"
                position = found[0]
        finally:
            os.close(fd)


def _damage_from(extent: Extent, position: int) -> DamagedError | None:
    try:
        for _found in walk(extent, position):
            pass
    except DamagedError as damage:
        return damage
    return None


def _segment_seeds() -> Sequence[bytes]:
    one, other = some_records(b"one"), bytearray(some_records(b"two", b"three"))
    other[:8] = (1).to_bytes(8, "big")
    return [one + bytes(other), one + bytes(20) + bytes(other)]


def _group_record(data: bytes) -> None:
    if not data:
        return
    decoders = (
        group_records.decode_key,
        group_records.decode_offset_value,
        group_records.decode_group_value,
        group_records.subscribed_topics,
    )
    decoders[data[0] % len(decoders)](data[1:])


def _group_record_seeds() -> Sequence[bytes]:
    member = group_records.MemberRecord("m", None, "client", "/127.0.0.1", 10_000, 30_000, b"\0\0", b"")
    group = group_records.GroupRecord("consumer", 3, "range", "m", 0, (member,))
    offset = group_records.OffsetAndMetadata(5, 0, "note", 0)
    return [
        b"\0" + group_records.encode_offset_key("group", _TP),
        b"\0" + group_records.encode_group_key("group"),
        b"\1" + group_records.encode_offset_value(offset),
        b"\2" + group_records.encode_group_value(group),
        b"\3\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff",
    ]


def _snapshot(data: bytes) -> None:
    """The checksum is made right: what is fuzzed lies behind it."""
    rest = data[6:]
    with _file(data[:2] + crc32c(rest).to_bytes(4, "big") + rest) as path:
        list(read_snapshot(path))


def _snapshot_seeds() -> Sequence[bytes]:
    return [b"\0\1" + bytes(4) + (rows).to_bytes(4, "big") + bytes(46 * rows) for rows in range(3)]


def _checkpoint(data: bytes) -> None:
    with _file(data) as path:
        OffsetCheckpoint(path.parent, path.name).read()
        LeaderEpochCache(path.parent)  # a damaged one is told in the log, and made again from the batches


def _checkpoint_seeds() -> Sequence[bytes]:
    return [b"0\n2\n0 0\n3 5\n", b"0\n1\ntopic 0 17\n", b""]


_ZNODES: Sequence[Callable[[bytes], object]] = (
    znodes.decode_cluster_id,
    lambda data: znodes.decode_broker(1, data),
    lambda data: znodes.decode_topic("topic", data),
    lambda data: znodes.decode_state(_TP, data, 0),
    znodes.decode_controller,
    lambda data: znodes.decode_config("/config/topics/topic", data),
    lambda data: znodes.decode_config_change("/config/changes/config_change_1", data),
    lambda data: znodes.decode_log_dir_event("/log_dir_event_notification/log_dir_event_1", data),
    znodes.decode_producer_id_block_end,
)


def _znode(data: bytes) -> None:
    if data:
        _ZNODES[data[0] % len(_ZNODES)](data[1:])


def _znode_seeds() -> Sequence[bytes]:
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    topic = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]},"adding_replicas":{}}'
    broker = (
        b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9092"],'
        b'"rack":"a","features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'
    )
    texts = (
        b'{"version":"1","id":"x"}',
        broker,
        topic,
        state,
        b'{"version":1,"brokerid":1,"timestamp":"1"}',
        b'{"version":1,"config":{"retention.ms":"1"}}',
        b'{"version":2,"entity_path":"topics/topic"}',
        b'{"version":1,"broker":1,"event":1}',
        znodes.encode_producer_id_block(1, 0, 999),
    )
    deep = b"[" * 3000 + b"]" * 3000
    return [bytes([index]) + text for index, text in enumerate((*texts, deep))]


def _properties(data: bytes) -> None:
    parse_properties(data.decode(errors="replace"))


def _http(data: bytes) -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        serve_connection(
            HttpConnection(ours, "127.0.0.1"),
            ("127.0.0.1", 1),
            lambda path, _authorization: (200, "text/plain", path.encode()),
            4,
            REQUEST_TIMEOUT_S,
        )
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.recv(1 << 16)


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[Path]:
    """A file in memory, alone in its directory, that bears the name of an epoch checkpoint."""
    directory = Path("/dev/shm") / f"landline-fuzz-{os.getpid()}"
    directory.mkdir(exist_ok=True)
    path = directory / "leader-epoch-checkpoint"
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink()
        directory.rmdir()


TARGETS: Sequence[Target] = (
    Target("request", _request, (ProtocolError,), _request_seeds),
    Target("response", _response, (ProtocolError,), _response_seeds),
    Target("records", _records, (RecordFormatError,), _record_seeds),
    Target("compressed", _compressed, (CompressionError,), _compressed_seeds),
    Target("segment", _segment, (), _segment_seeds),
    Target("group-record", _group_record, (MalformedRecord,), _group_record_seeds),
    Target("snapshot", _snapshot, (SnapshotError,), _snapshot_seeds),
    Target("checkpoint", _checkpoint, (CheckpointError,), _checkpoint_seeds),
    Target("znode", _znode, (znodes.BadZnodeError,), _znode_seeds),
    Target("properties", _properties, (ConfigError,), lambda: [b"a=b\n", b"a:\\\n b\\u0041", b"! c\nd e"]),
    Target(
        "http",
        _http,
        (),
        lambda: [b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"HEAD / HTTP/1.0\r\n\r\n", b"POST /\r\n"],
    ),
)
BY_NAME = {target.name: target for target in TARGETS}
