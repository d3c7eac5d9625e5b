"""What is fuzzed: each decoder with the errors that it may answer with, and inputs to begin from.

`target` says what a defect is. Those that are more than a decoder have modules of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from crc32c import crc32c

from broker.config.problems import ConfigError
from broker.config.properties import parse_properties
from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group import records as group_records
from broker.coordinator.transaction import records as transaction_records
from broker.coordinator.transaction.states import TransactionState
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
from broker.utils.topic_partition import TopicPartition
from rig.raw_client import request_frame
from tests.fuzz import batches, http_port, logins, tls, znodes
from tests.fuzz.target import Target, file_of
from tests.support.valid_requests import ALL_VERSIONS, World, body, some_records

_MOST_INFLATED = 1 << 20
_CODECS = (1, 2, 3, 4)
_TP = TopicPartition("topic", 0)


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
    with file_of(data) as path:
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
        transaction_records.decode_key,
        transaction_records.decode_value,
    )
    decoders[data[0] % len(decoders)](data[1:])


def _group_record_seeds() -> Sequence[bytes]:
    member = group_records.MemberRecord("m", None, "client", "/127.0.0.1", 10_000, 30_000, b"\0\0", b"")
    group = group_records.GroupRecord("consumer", 3, "range", "m", 0, (member,))
    offset = group_records.OffsetAndMetadata(5, 0, "note", 0)
    state, partitions = TransactionState.Ongoing, {"topic": frozenset({1, 2})}
    transaction = transaction_records.TransactionRecord(1, 0, 60_000, state, partitions, 5, 4)
    return [
        b"\0" + group_records.encode_offset_key("group", _TP),
        b"\0" + group_records.encode_group_key("group"),
        b"\1" + group_records.encode_offset_value(offset),
        b"\2" + group_records.encode_group_value(group),
        b"\3\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff",
        b"\4" + transaction_records.encode_key("transaction"),
        b"\5" + transaction_records.encode_value(transaction),
    ]


def _snapshot(data: bytes) -> None:
    """The checksum is made right: what is fuzzed lies behind it."""
    rest = data[6:]
    with file_of(data[:2] + crc32c(rest).to_bytes(4, "big") + rest) as path:
        list(read_snapshot(path))


def _snapshot_seeds() -> Sequence[bytes]:
    return [b"\0\1" + bytes(4) + (rows).to_bytes(4, "big") + bytes(46 * rows) for rows in range(3)]


def _checkpoint(data: bytes) -> None:
    with file_of(data) as path:
        OffsetCheckpoint(path.parent, path.name).read()
        LeaderEpochCache(path.parent)  # a damaged one is told in the log, and made again from the batches


def _checkpoint_seeds() -> Sequence[bytes]:
    return [b"0\n2\n0 0\n3 5\n", b"0\n1\ntopic 0 17\n", b""]


def _properties(data: bytes) -> None:
    parse_properties(data.decode(errors="replace"))


TARGETS: Sequence[Target] = (
    Target("request", _request, (ProtocolError,), _request_seeds),
    Target("response", _response, (ProtocolError,), _response_seeds),
    Target("records", _records, (RecordFormatError,), _record_seeds),
    Target("compressed", _compressed, (CompressionError,), _compressed_seeds),
    Target("segment", _segment, (), _segment_seeds),
    Target("group-record", _group_record, (MalformedRecord,), _group_record_seeds),
    Target("snapshot", _snapshot, (SnapshotError,), _snapshot_seeds),
    Target("checkpoint", _checkpoint, (CheckpointError,), _checkpoint_seeds),
    Target("properties", _properties, (ConfigError,), lambda: [b"a=b\n", b"a:\\\n b\\u0041", b"! c\nd e"]),
    *batches.TARGETS,
    *http_port.TARGETS,
    *logins.TARGETS,
    *tls.TARGETS,
    *znodes.TARGETS,
)
BY_NAME = {target.name: target for target in TARGETS}
