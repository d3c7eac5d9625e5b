"""Messages of magic 0 and 1, the formats before Kafka 0.11: what old producers send and old consumers get."""

from __future__ import annotations

from typing import Final

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.protocol.api_keys import ApiKey
from tests.differential.script import Script, Step, constant
from tests.differential.scripts.records import fetched
from tests.differential.scripts.shapes import batch, new_topic, produced
from tests.support.times import NOW_MS

_PLAIN: Final = "old"
_TOPICS: Final = {
    _PLAIN: {},
    "old-compacted": {"cleanup.policy": "compact"},
    "old-gzip": {"compression.type": "gzip"},
    "old-small": {"max.message.bytes": "120"},
    "old-recent": {"message.timestamp.before.max.ms": "1000"},
    "old-replicated": {"min.insync.replicas": "2"},
}
_FILLED: Final = (_PLAIN, "old-compacted", "old-gzip")
_OF_PRODUCERS: Final = range(4)
_CODECS: Final = {"plain": 0, "gzip": 1}


# Where a batch has its codec and its flags, such a message has a part of its time: zstd, and of a transaction.
_LIKE_ZSTD: Final = NOW_MS & ~(0xFF << 24) | 0x14 << 24


def _messages(magic: int, *values: bytes, codec: int = 0, at_ms: int = NOW_MS) -> bytes:
    built = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, value in enumerate(values):
        built.append(number, at_ms + number, b"key", value)
    return bytes(built.build())


def _produce(name: str, topic: str, records: bytes) -> Step:
    return Step(f"{name} to {topic}", ApiKey.PRODUCE, constant(**produced(topic, records)), _OF_PRODUCERS)


_WHOLE: Final = _messages(1, b"first", b"second")
OLD_FORMATS: Final = Script(
    "old formats",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            constant(topics=[new_topic(name, configs=configs) for name, configs in _TOPICS.items()]),
            (7,),
        ),
        *(
            _produce(f"magic {magic}, {name},", topic, _messages(magic, b"first", b"second", codec=codec))
            for magic in (0, 1)
            for name, codec in _CODECS.items()
            for topic in (*_TOPICS, "nowhere")
        ),
        _produce("large", "old-small", _messages(1, b"x" * 200)),
        _produce("large, gzip,", "old-small", _messages(1, b"x" * 200, codec=1)),
        _produce("a wrong checksum", _PLAIN, _WHOLE[:-1] + b"?"),
        _produce("a time like a codec", _PLAIN, _messages(1, b"first", b"second", at_ms=_LIKE_ZSTD)),
        _produce("a cut one", _PLAIN, _WHOLE[:-3]),
        _produce("both magics", _PLAIN, _messages(0, b"first") + _WHOLE),
        *(
            _produce("a new batch", topic, batch(b"one", b"two", b"three"))
            for topic in (_PLAIN, "old-recent", "old-replicated")
        ),
        *(
            Step(f"fetch {topic} at {offset}", ApiKey.FETCH, fetched(topic, offset=offset), (0, 1, 2, 3, 4))
            for topic in _FILLED
            for offset in (0, 1)
        ),
        *(
            Step(
                f"fetch {size} bytes of {topic}",
                ApiKey.FETCH,
                fetched(topic, partition_max_bytes=size),
                (0, 2, 3),
            )
            for topic in _FILLED
            for size in (0, 50, 100, 150)
        ),
    ],
)
