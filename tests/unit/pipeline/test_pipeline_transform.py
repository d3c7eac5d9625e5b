"""The journal job's transformations, over a real local Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline import transform
from pipeline.dead_letters import dead_letters
from pipeline.schema import RECORD_COLUMNS
from tests.support.local_spark import SPARK_WARNINGS, local_spark

pytestmark = [*SPARK_WARNINGS, pytest.mark.xdist_group("spark")]  # one JVM for all of them

SOURCE_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
)
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark("test_pipeline_transform", tmp_path_factory.mktemp("warehouse")) as session:
        yield session


def micros(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1_000_000))


def entry(moment: datetime = NOON, **fields: Any) -> dict[str, Any]:
    return {"__REALTIME_TIMESTAMP": micros(moment), "__CURSOR": "s=1;i=1", "_HOSTNAME": "h1"} | fields


def rows_of(spark: SparkSession, *values: bytes | None, key: bytes | None = b"h1") -> DataFrame:
    source = [(key, value, "landline.journal", 0, offset, NOON) for offset, value in enumerate(values)]
    return transform.parsed(spark.createDataFrame(source, SOURCE_SCHEMA), "10 minutes")


def the_record(spark: SparkSession, value: dict[str, Any], key: bytes | None = b"h1") -> Row:
    (row,) = transform.records(rows_of(spark, json.dumps(value).encode(), key=key)).collect()
    return row


def test_journal_entry_becomes_a_record_with_its_origin(spark: SparkSession) -> None:
    row = the_record(
        spark,
        entry(
            _SYSTEMD_UNIT="ssh.service", PRIORITY="4", _PID="17", MESSAGE="hello", SYSLOG_IDENTIFIER="sshd"
        ),
    )
    assert tuple(row.asDict()) == RECORD_COLUMNS
    assert (row.topic, row.partition, row.offset) == ("landline.journal", 0, 0)
    assert (row.host, row.unit, row.priority, row.pid) == ("h1", "ssh.service", 4, 17)
    assert (row.message, row.identifier, row.cursor) == ("hello", "sshd", "s=1;i=1")
    assert row.event_time.timestamp() == NOON.timestamp()
    assert row.event_date.isoformat() == "2026-11-21"


def test_event_time_keeps_its_microseconds(spark: SparkSession) -> None:
    assert the_record(spark, entry(NOON + timedelta(microseconds=123_457))).event_time.microsecond == 123_457


def test_entry_without_unit_or_priority_gets_the_journals_defaults(spark: SparkSession) -> None:
    row = the_record(spark, entry())
    assert (row.unit, row.priority, row.pid) == ("-", 6, None)


@pytest.mark.parametrize("priority", ["8", "-1", "high", "99999999999"])
def test_priority_that_syslog_does_not_know_becomes_info(spark: SparkSession, priority: str) -> None:
    assert the_record(spark, entry(PRIORITY=priority)).priority == 6


def test_host_comes_from_the_key_when_the_entry_does_not_name_it(spark: SparkSession) -> None:
    value = entry()
    del value["_HOSTNAME"]
    assert the_record(spark, value, key=b"h7").host == "h7"
    assert the_record(spark, value, key=None).host == "-"


def test_binary_message_is_kept_as_the_text_of_its_array(spark: SparkSession) -> None:
    assert json.loads(the_record(spark, entry(MESSAGE=[255, 0, 65])).message) == [255, 0, 65]


BAD_VALUES: dict[str, tuple[bytes | None, str]] = {
    "tombstone": (None, "the record has no value"),
    "empty": (b"", "the value is not a JSON object"),
    "not_utf8": (b'{"MESSAGE":"\xff\xfe"}', "the value is not UTF-8"),
    "plain_text": (b"hello", "the value is not a JSON object"),
    "array": (json.dumps([entry()]).encode(), "the value is not a JSON object"),
    "number": (b"17", "the value is not a JSON object"),
    "json_null": (b"null", "the value is not a JSON object"),
    "trailing_text": (json.dumps(entry()).encode() + b" and more", "text follows the JSON object"),
    "two_objects": (json.dumps(entry()).encode() * 2, "text follows the JSON object"),
    "two_listed_objects": (b", ".join([json.dumps(entry()).encode()] * 2), "text follows the JSON object"),
    "cut_short": (b'{"__REALTIME_TIMESTAMP": "1", "MESSAGE": "x}', "the value is not valid JSON"),
    "no_time": (b'{"MESSAGE": "x"}', "__REALTIME_TIMESTAMP is missing"),
    "time_in_words": (
        b'{"__REALTIME_TIMESTAMP": "noon"}',
        "__REALTIME_TIMESTAMP is not a time in microseconds",
    ),
    "time_zero": (b'{"__REALTIME_TIMESTAMP": "0"}', "__REALTIME_TIMESTAMP is not a time in microseconds"),
    "time_past_9999": (
        b'{"__REALTIME_TIMESTAMP": "253402300800000000"}',
        "__REALTIME_TIMESTAMP is not a time in microseconds",
    ),
    "time_past_64_bits": (
        b'{"__REALTIME_TIMESTAMP": "99999999999999999999"}',
        "__REALTIME_TIMESTAMP is not a time in microseconds",
    ),
    "future": (
        json.dumps(entry(NOON + timedelta(minutes=11))).encode(),
        "__REALTIME_TIMESTAMP is more than 10 minutes ahead of the record's own time",
    ),
}


def test_what_does_not_parse_becomes_a_dead_letter_with_reason_and_origin(spark: SparkSession) -> None:
    rows = rows_of(spark, *(value for value, _ in BAD_VALUES.values()))
    letters = {bytes(row.key).decode(): row for row in dead_letters(rows).collect()}
    assert transform.records(rows).count() == 0
    assert len(letters) == len(BAD_VALUES)
    for offset, (name, (value, reason)) in enumerate(BAD_VALUES.items()):
        row = letters[f"landline.journal-0-{offset}"]
        assert (None if row.value is None else bytes(row.value)) == value, name
        headers = {header.key: bytes(header.value).decode() for header in row.headers}
        assert headers == {
            "landline.dead-letter.reason": reason,
            "landline.dead-letter.topic": "landline.journal",
            "landline.dead-letter.partition": "0",
            "landline.dead-letter.offset": str(offset),
            "landline.dead-letter.timestamp": str(int(NOON.timestamp() * 1000)),
        }, name


def test_every_input_is_a_record_or_a_dead_letter_and_never_both(spark: SparkSession) -> None:
    good = [json.dumps(entry(MESSAGE=str(number))).encode() for number in range(20)]
    bad = [value for value, _ in BAD_VALUES.values()]
    rows = rows_of(spark, *good, *bad)
    kept = {row.offset for row in transform.records(rows).collect()}
    letters = {int(bytes(row.key).decode().rpartition("-")[2]) for row in dead_letters(rows).collect()}
    assert kept == set(range(20))
    assert letters == set(range(20, 20 + len(bad)))


def stream_windows(
    spark: SparkSession, directory: Path, batches: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Feeds each list as one micro-batch; gives the window messages of all, less those still open."""
    source, checkpoint = directory / "in", directory / "checkpoint"
    source.mkdir()
    name = f"windows_{directory.name}".replace("-", "_")
    for number, batch in enumerate(batches):
        rows = [
            (b"h1", json.dumps(value).encode(), "landline.journal", 0, 100 * number + place, NOON)
            for place, value in enumerate(batch)
        ]
        spark.createDataFrame(rows, SOURCE_SCHEMA).coalesce(1).write.mode("append").parquet(
            str(source / str(number))
        )
    stream = spark.readStream.schema(SOURCE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{source}/*")
    entries = transform.records(transform.parsed(stream, "1 day"))
    frame = transform.window_messages(transform.windows(entries, "1 minute", "1 minute", "1 minute"))
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [json.loads(bytes(row.value)) for row in spark.sql(f"SELECT value FROM {name}").collect()]


def test_windows_count_each_entry_once_though_it_was_shipped_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = [entry(NOON, __CURSOR=f"c{number}", _SYSTEMD_UNIT="a.service") for number in range(3)]
    again = [entry(NOON, __CURSOR="c1", _SYSTEMD_UNIT="a.service")]
    later = [entry(NOON + timedelta(minutes=5), __CURSOR="c9")]
    last = [entry(NOON + timedelta(minutes=9), __CURSOR="c10")]
    counts = stream_windows(spark, tmp_path, [first + again, again + later, last])
    assert {
        "window_start": "2026-11-21T12:00:00.000Z",
        "window_end": "2026-11-21T12:01:00.000Z",
        "host": "h1",
        "unit": "a.service",
        "priority": 6,
        "count": 3,
    } in counts
    assert sum(count["unit"] == "a.service" for count in counts) == 1


def test_entry_later_than_the_watermark_is_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    on_time = [entry(NOON, __CURSOR="c1"), entry(NOON + timedelta(minutes=10), __CURSOR="c2")]
    pusher = [entry(NOON + timedelta(minutes=20), __CURSOR="c3")]
    late = [entry(NOON, __CURSOR="c4"), entry(NOON + timedelta(minutes=30), __CURSOR="c5")]
    counts = stream_windows(spark, tmp_path, [on_time, pusher, late])
    noon = [count["count"] for count in counts if count["window_start"] == "2026-11-21T12:00:00.000Z"]
    assert noon == [1]


def test_records_without_a_cursor_are_no_duplicates(spark: SparkSession, tmp_path: Path) -> None:
    nameless = [entry(NOON, __CURSOR=None) for _ in range(4)]
    later = [entry(NOON + timedelta(minutes=5), __CURSOR="c9")]
    last = [entry(NOON + timedelta(minutes=9), __CURSOR="c10")]
    counts = stream_windows(spark, tmp_path, [nameless, later, last])
    assert [count["count"] for count in counts if count["window_start"] == "2026-11-21T12:00:00.000Z"] == [4]
