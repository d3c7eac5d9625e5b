"""The lake job against a real broker: every record once, as a row that fits the schema or as a dead letter.

One broker and one Spark serve all of these tests, each with topics and a lake of its own. ``LAKE_KILLS``
(``make lake-kills``) has the comparison's job killed that often instead of once.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from pipeline.compare_batch import compare, count_dead_letters
from pipeline.errors import PipelineError, SchemaError
from pipeline.jars import connector_jars
from pipeline.lake_rows import bad_rows, checked, good_rows
from pipeline.lake_schema import written_schema
from pipeline.lifecycle import EVENT_SCHEMA
from pipeline.lifecycle_lake import lifecycle_options_from
from rig.landline_broker import LandlineStandalone
from rig.topics import await_leaders, create_topic
from rig.wait import wait_until
from tests.support import comparison_oracle, lifecycle_events
from tests.support.lake_jobs import (
    PACE,
    LakeJob,
    job_process,
    kill_in_mid_stream,
    lake_job,
    lake_options,
    produce,
    torn,
)
from tests.support.local_spark import SPARK_WARNINGS, local_spark

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900), *SPARK_WARNINGS]

KILLS = int(os.environ.get("LAKE_KILLS", "1"))
COUNTED = "n INT NOT NULL"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with local_spark("test_pipeline_lake", warehouse, cores=2, jars=connector_jars()) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {"offsets.topic.num.partitions": 2, "auto.create.topics.enable": "false"}
    with LandlineStandalone(tmp_path_factory.mktemp("broker") / "data", config) as running:
        yield running


def numbered(first: int, past: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(first, past)]


def assert_every_input_once(job: LakeJob, count: int) -> None:
    """Each record is exactly one row or a dead letter."""
    inputs, places, letters = job.inputs(), job.places(), job.letters()
    assert len(inputs) == count
    assert set(places.values()) == {1}
    assert set(places) | set(letters) == set(inputs)
    assert not set(places) & set(letters)


EVERY_TYPE = (
    "id STRING NOT NULL, yes BOOLEAN, tiny TINYINT, whole BIGINT, part DOUBLE, price DECIMAL(6,2), day DATE, "
    "moment TIMESTAMP, tags ARRAY<STRING>, counts MAP<STRING, INT>, "
    "inner STRUCT<a: INT NOT NULL, deep: STRUCT<b: STRING>>, parts ARRAY<STRUCT<x: INT NOT NULL>>"
)
BAD: dict[str, Any] = {
    "the record has no value": None,
    "the value is not UTF-8": b'{"id":"\xff"}',
    "the value is not a JSON object": b"[1]",
    "the value is not valid JSON, or names a field twice": b'{"id":"a","id":"b"}',
    "text follows the JSON object": b'{"id":"a"} {"id":"b"}',
    "id is missing": {"whole": 1},
    "id is of type BIGINT, not string": {"id": 7},
    "yes is of type STRING, not boolean": {"id": "a", "yes": "true"},
    "tiny is no tinyint": {"id": "a", "tiny": 128},
    "whole is of type DECIMAL, not bigint": b'{"id":"a","whole":1.5}',
    "part is of type STRING, not double": {"id": "a", "part": "0.5"},
    "price is no decimal(6,2)": b'{"id":"a","price":1.005}',
    "day is no date": {"id": "a", "day": "2026-02-30"},
    "moment is no timestamp": {"id": "a", "moment": "2026-11-22T09:00:00"},
    "tags[] is of type BIGINT, not string": {"id": "a", "tags": ["b", 1]},
    "counts{} is of type STRING, not int": {"id": "a", "counts": {"b": "1"}},
    "inner is of type ARRAY, not struct<a:int,deep:struct<b:string>>": {"id": "a", "inner": []},
    "inner.a is missing": {"id": "a", "inner": {"a": None}},
    "inner.deep.b is of type BOOLEAN, not string": {"id": "a", "inner": {"a": 1, "deep": {"b": True}}},
    "parts[].x is missing": {"id": "a", "parts": [{"x": 1}, {}]},
    "check failed: whole <> 13": {"id": "a", "whole": 13},
}


def test_fields_are_taken_as_what_they_are_or_refused_by_name(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    job = lake_job(
        spark, broker.bootstrap, tmp_path, "types", 1,
        schema=EVERY_TYPE, unknown="rest", check=("whole <> 13",),
    )  # fmt: skip
    full = {
        "id": "full", "yes": True, "tiny": -128, "whole": 2**62, "part": 3, "price": 12.5, "day": "2026-11-22",
        "moment": "2026-11-22T11:00:00.000001+02:00", "tags": ["x", None], "counts": {"a": 1},
        "inner": {"a": 1, "deep": {"b": "c"}}, "parts": [{"x": 1}, {"x": 2}],
        "more": {"deep": [1, "two", None]}, "even": 1.5,
    }  # fmt: skip
    produce(broker.bootstrap, "types", [full, {"id": "least", "whole": None}, *BAD.values()], partition=0)
    job.run()

    reasons = [reason for _place, reason in sorted(job.letters().items())]
    assert reasons == list(BAD)
    assert_every_input_once(job, 2 + len(BAD))
    rows = {row.id: row.asDict(recursive=True) for row in job.rows()}
    least = {name for name, value in rows["least"].items() if value is not None}
    assert least == {"id", "_topic", "_partition", "_offset", "_kafka_time"}
    row = rows["full"]
    assert json.loads(row.pop("_rest")) == {"more": full["more"], "even": 1.5}
    assert row.pop("moment").astimezone(UTC) == datetime(2026, 11, 22, 9, 0, 0, 1, tzinfo=UTC)
    known = {name: value for name, value in row.items() if not name.startswith("_")}
    expected = {**full, "price": Decimal("12.50"), "day": date(2026, 11, 22)}
    assert known == {name: expected[name] for name in known}
    assert len(known) == 11


def test_late_event_is_marked_or_refused_as_asked(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    given = {"schema": "n INT NOT NULL, at BIGINT NOT NULL", "event_time": "at", "time_unit": "ms"}
    job = lake_job(
        spark, broker.bootstrap, tmp_path / "marked", "late", 1,
        **given, watermark="10 minutes", partition_by="event_date",
    )  # fmt: skip
    now = time.time()
    minutes_ago = (0, 9, 11, 60 * 24 * 30)
    events = [{"n": n, "at": int((now - 60 * minutes) * 1000)} for n, minutes in enumerate(minutes_ago)]
    no_time = {"n": 4, "at": 2**60}
    produce(broker.bootstrap, "late", [*events, no_time], partition=0)
    job.run()
    marks = {row.n: (row.late, row.event_date) for row in job.rows()}
    days = [datetime.fromtimestamp(event["at"] / 1000, UTC).date() for event in events]
    assert marks == {n: (n > 1, day) for n, day in enumerate(days)}
    assert list(job.letters().values()) == ["at is not a time in ms between 1970 and 9999"]

    strict = replace(job.options, late="dead-letter").shape()
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = checked(source.option("subscribe", "late").load(), strict)
    assert {row.n for row in good_rows(rows, strict).collect()} == {0, 1}
    reasons = {row.offset: row.reason for row in bad_rows(rows).collect()}
    assert reasons.keys() == {2, 3, 4}
    assert reasons[2] == "late: at is more than 10 minutes before the record's own time"


def test_batch_that_was_torn_is_written_once_and_copies_are_left_out(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    job = lake_job(
        spark,
        broker.bootstrap,
        tmp_path,
        "torn",
        schema="n INT",
        deduplicate_by="n",
        max_offsets_per_trigger=150,
    )
    nameless = [{}, {"n": None}]
    produce(broker.bootstrap, "torn", [*numbered(0, 120), *numbered(0, 60), *nameless, b"bad"])
    job.run()
    whole = job.places()
    assert whole.total() == 122

    assert torn(job, listed=False) > 0
    assert job.places().total() < 122
    produce(broker.bootstrap, "torn", numbered(100, 150))
    job.run()
    assert job.places().keys() > whole.keys()

    before = job.places()
    torn(job, listed=True)
    produce(broker.bootstrap, "torn", numbered(140, 160), partition=1)
    job.run()
    assert before.keys() < job.places().keys()
    assert set(job.places().values()) == {1}
    assert sorted(row.n for row in job.rows() if row.n is not None) == list(range(160))
    assert sum(row.n is None for row in job.rows()) == 2
    assert list(job.letters().values()) == ["the value is not a JSON object"]


def test_field_is_added_beside_old_files_and_its_type_cannot_change(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    old = "n INT NOT NULL, inner STRUCT<a: INT>"
    job = lake_job(spark, broker.bootstrap, tmp_path, "evolving", schema=old, unknown="ignore")
    produce(broker.bootstrap, "evolving", [{"n": 1, "inner": {"a": 1}}])
    job.run()
    later = [{"n": 2, "inner": {"a": 2, "b": "x"}, "more": [1.5]}, {"n": 3}]
    produce(broker.bootstrap, "evolving", later)
    job.run(schema="n INT NOT NULL, inner STRUCT<a: INT, b: STRING>, more ARRAY<DOUBLE>")

    rows = sorted((row.n, row.inner and row.inner.asDict(), row.more) for row in job.rows())
    assert rows == [(1, {"a": 1, "b": None}, None), (2, {"a": 2, "b": "x"}, [1.5]), (3, None, None)]
    for refused, why in {
        "n STRING NOT NULL": "n is string and was int",
        "n INT NOT NULL, must INT NOT NULL": "the new field must must be optional",
        "n INT NOT NULL, inner STRUCT<a: BIGINT>": "inner.a is bigint and was int",
    }.items():
        with pytest.raises(SchemaError, match=why):
            job.run(schema=refused)
    with pytest.raises(SchemaError, match="not partitioned by n"):
        job.run(partition_by=("n",))


def test_lake_without_a_committed_batch_takes_any_schema(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun/_spark_metadata").mkdir(parents=True)
    for name in ("none", "empty", "begun"):
        assert written_schema(spark, str(tmp_path / name)) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": "n NUMBERS"}, "'n NUMBERS' is no schema: .*NUMBERS"),
        ({"schema": "INT"}, "'INT' is one type"),
        ({"check": ("m > 1",)}, "'m > 1' is no check of the fields: .*`m`"),
        ({"check": ("n",)}, "'n' is no check of the fields"),
        ({"check": ("n >",)}, "'n >' is no check of the fields: .*PARSE_SYNTAX_ERROR"),
        ({"deduplicate_by": "m"}, "an option names m"),
    ],
)
def test_job_that_is_asked_wrongly_says_so_before_it_reads(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    given = {"bootstrap_servers": broker.bootstrap, "topics": "asked", "dead_letter_topic": None}
    job = LakeJob(spark, lake_options(tmp_path, schema=COUNTED, **given))
    with pytest.raises(SchemaError, match=why):
        job.run(**changes)


def test_stream_lives_through_a_killed_broker_and_reads_partitions_that_come_later(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    job = lake_job(
        spark, broker.bootstrap, tmp_path, "outage", 1, schema=COUNTED, max_offsets_per_trigger=200
    )
    produce(broker.bootstrap, "outage", [*numbered(0, 2000), b"bad"])
    queries = job.start(available_now=False)

    def written(rows: int) -> None:
        wait_until(
            lambda: job.places().total() >= rows or not all(query.isActive for query in queries),
            timeout=180,
            what=f"{rows} rows",
        )
        assert [query.exception() for query in queries] == [None, None]

    try:
        written(200)
        broker.kill()
        assert job.places().total() < 2000, "all was read: nothing was killed in mid-stream"
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("outage", 3)])["outage"].result(60)
        await_leaders(broker.bootstrap, "outage", 3)
        produce(broker.bootstrap, "outage", numbered(2000, 2100), partition=2)
        written(2100)
        wait_until(job.letters, timeout=60, interval=0.5, what="the dead letter")
    finally:
        for query in queries:
            query.stop()
    assert_every_input_once(job, 2101)
    assert {partition for _topic, partition, _offset in job.places()} == {0, 2}


PLAN = lifecycle_events.Plan(hosts=(2, 3), rounds=1 + KILLS, scenarios=("cold-start", "crash"))
TOPIC = "lifecycle"


def lifecycle_job(spark: SparkSession, bootstrap: str, directory: Path) -> LakeJob:
    given = {
        **PACE,
        "bootstrap_servers": bootstrap,
        "topics": TOPIC,
        "dead_letter_topic": f"{TOPIC}.{directory.name}.dead",
        "output": str(directory / "lake"),
        "checkpoint": str(directory / "checkpoint"),
    }
    create_topic(bootstrap, f"{TOPIC}.{directory.name}.dead", 1)
    return LakeJob(spark, lifecycle_options_from(given))


def test_comparison_is_the_same_from_a_run_that_was_killed_twice_and_as_pandas_has_it(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    values = lifecycle_events.messages(lifecycle_events.events(PLAN), copies=0.2)
    other_version = json.dumps({**json.loads(values[0]), "id": "two", "schema": 2}).encode()
    create_topic(broker.bootstrap, TOPIC, 3)
    produce(broker.bootstrap, TOPIC, [*values, b"no event", other_version])

    whole = lifecycle_job(spark, broker.bootstrap, tmp_path / "whole")
    whole.run()
    killed = lifecycle_job(spark, broker.bootstrap, tmp_path / "killed")
    kill_for_real(killed, len(set(values)), tmp_path / "job.log")
    torn(killed, listed=False)  # the second kill, between the files and the sink's commit
    killed.run()

    assert set(whole.letters().values()) == {"the value is not a JSON object", "check failed: schema = 1"}
    assert whole.letters() == killed.letters()
    dead = count_dead_letters(spark, broker.bootstrap, killed.options.dead_letter_topic)
    assert count_dead_letters(spark, broker.bootstrap, "no.such.topic") == 0
    content = compare(spark, str(killed.output), dead_letters=dead)
    assert content == compare(spark, str(whole.output), dead_letters=2)
    expected = comparison_oracle.comparison(values, PLAN.comparison_id, dead_letters=2)
    assert_same_figures(json.loads(content), expected)


def kill_for_real(job: LakeJob, events: int, log: Path) -> None:
    """SIGKILL in mid-stream, as often as is asked, each time when some more rows are there."""
    options = job.options
    process = job_process(
        "lifecycle_lake", log,
        "--bootstrap-servers", options.bootstrap_servers, "--topics", options.topics,
        "--dead-letter-topic", options.dead_letter_topic, "--output", options.output,
        "--checkpoint", options.checkpoint, "--max-offsets-per-trigger", "40", "--trigger", "0 seconds",
        "--shuffle-partitions", "1",
    )  # fmt: skip
    for _kill in range(KILLS):
        before = job.places().total()
        process.start()
        kill_in_mid_stream(process, job, before + random.randrange(20, 60))
        assert job.places().total() < events, "all was read: nothing was killed in mid-stream"


def assert_same_figures(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Equal but for a line's last decimal: least squares by another way may round the other way."""
    lines = [
        (*fit[:3], *(pytest.approx(number, abs=0.0011) for number in fit[3:]))
        for fit in map(line_of, expected["fits"])
    ]
    assert list(map(line_of, found["fits"])) == lines
    assert {**found, "fits": None} == {**expected, "fits": None}


def line_of(fit: dict[str, Any]) -> tuple[Any, ...]:
    return fit["system"], fit["model"], fit["figure"], fit["n"], fit["a_ms"], fit["b_ms"], fit["r2"]


def test_lake_with_copies_and_other_comparisons_gives_the_same_figures(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = lifecycle_events.events(PLAN)
    other = lifecycle_events.events(
        lifecycle_events.Plan(seed=8, comparison_id="other", hosts=(2,), rounds=1)
    )
    values = lifecycle_events.messages(events, copies=0)
    copies = lifecycle_events.messages([*events, *other], seed=9, copies=0.5)
    write_lake(spark, tmp_path / "plain", values)
    write_lake(spark, tmp_path / "mixed", copies)

    plain = json.loads(compare(spark, str(tmp_path / "plain")))
    assert_same_figures(plain, comparison_oracle.comparison(values, PLAN.comparison_id))
    mixed = json.loads(compare(spark, str(tmp_path / "mixed"), PLAN.comparison_id))
    assert mixed.pop("inputs")["duplicates"] > 0
    assert plain.pop("inputs")["duplicates"] == 0
    assert mixed == plain
    with pytest.raises(PipelineError, match="give --comparison-id; the lake's comparisons: other, sample"):
        compare(spark, str(tmp_path / "mixed"))
    with pytest.raises(PipelineError, match="there is no lake at"):
        compare(spark, str(tmp_path / "none"))


def write_lake(spark: SparkSession, directory: Path, values: list[bytes]) -> None:
    """A lake's rows without their topic."""
    lines = directory.with_suffix(".jsonl")
    lines.write_bytes(b"\n".join(values))
    spark.read.schema(EVENT_SCHEMA).json(str(lines)).repartition(3).write.parquet(str(directory))
