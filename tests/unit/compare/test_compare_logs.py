"""What ZooKeeper's and Spark's own words say of their starts: lines of real starts, tests/data/compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare import collect, journal, spark_log, steps
from compare.events import Story
from compare.steps import Line, ProcessLog

DATA = Path(__file__).parents[2] / "data/compare"
ZOOKEEPER_UNIT, WORKER_UNIT = "zookeeper.service", "landline-spark-worker.service"


def entries(name):
    return journal.entries((DATA / f"{name}.journal.jsonl").read_text())


def spark_lines(name):
    return spark_log.lines((DATA / f"{name}.out").read_text().splitlines())


def told(role, log, began_us):
    """Each step with how long it took in milliseconds, and its outcome."""
    story = Story("r", f"r.{role}.1", "h1", role, "1", "independent", log.boot_id)
    return [
        (event["step"], (event["end_us"] - event["start_us"]) // 1000, event["outcome"])
        for event in steps.tell(story, log, began_us)
    ]


def test_a_units_start_is_found_in_the_journal():
    assert journal.starts_us(entries("zookeeper"), ZOOKEEPER_UNIT) == [1795341287576805]
    assert journal.starts_us(entries("zookeeper"), "another.service") == []


def test_each_process_of_a_unit_is_a_log_of_its_own():
    former, present = journal.processes(entries("zookeeper"))
    assert len(former.lines) == 1
    assert "closeSession" in former.lines[0].text
    assert present.lines[0].text.endswith("Reading configuration from: /etc/zookeeper/landline.cfg")
    assert len(present.boot_id) == 36


def test_a_zookeeper_server_has_started_when_it_follows():
    known = entries("zookeeper")
    _, log = journal.processes(known)
    began_us = steps.begun(log.lines, journal.starts_us(known, ZOOKEEPER_UNIT))
    assert told("zookeeper", log, began_us) == [
        ("Process", 1387, "ok"),
        ("Election", 3074, "ok"),
        ("Ready", 4461, "ok"),
    ]


def test_a_supervised_worker_tells_in_the_journal_when_it_connected_and_registered():
    known = entries("spark-worker")
    launcher, worker = (
        ProcessLog(tuple(spark_log.lines(line.text for line in log.lines)), log.boot_id)
        for log in journal.processes(known)
    )
    # spark-class runs a JVM to find the command line: its words have no time.
    assert launcher.lines == ()
    began_us = steps.begun(worker.lines, journal.starts_us(known, WORKER_UNIT))
    assert told("spark-worker", worker, began_us) == [
        ("Process", 35613, "ok"),
        ("Connect", 12694, "ok"),
        ("Register", 606, "ok"),
        ("Ready", 48913, "ok"),
    ]


def test_a_worker_that_asked_twice_registered_in_the_end():
    log = ProcessLog(tuple(spark_lines("spark-worker")))
    assert told("spark-worker", log, log.lines[0].at_us - 1_000_000) == [
        ("Process", 1000, "ok"),
        ("Connect", 10530, "ok"),
        ("Register", 10072, "ok"),
        ("Ready", 21602, "ok"),
    ]


def test_a_master_binds_and_is_elected():
    log = ProcessLog(tuple(spark_lines("spark-master")))
    assert told("spark-master", log, None) == [
        ("Bind", 17315, "ok"),
        ("Elected", 3851, "ok"),
        ("Ready", 21166, "ok"),
    ]


def test_a_start_that_was_cut_short_says_which_step_failed_and_is_not_ready():
    log = ProcessLog(tuple(line for line in spark_lines("spark-worker") if "registered" not in line.text))
    assert [(step, outcome) for step, _, outcome in told("spark-worker", log, None)] == [
        ("Connect", "ok"),
        ("Register", "failed"),
    ]


def test_a_process_began_with_the_last_start_before_its_first_line():
    assert steps.begun([Line(50, "")], [10, 40, 60]) == 40
    assert steps.begun([Line(50, "")], [60]) is None


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("2026-11-22T09:57:30.730Z INFO Master: hello", 1795341450730000),
        ("2026-11-22T10:57:30.730+01:00 WARN Master: hello", 1795341450730000),
    ],
)
def test_sparks_lines_have_milliseconds_and_a_zone(text, at_us):
    assert spark_log.lines([text, "\tat java.lang.Thread.run", "====", ""]) == [Line(at_us, "hello")]


def test_an_entry_that_is_no_text_is_left_out():
    assert journal.entries('{"MESSAGE": [1, 2]}\nhalf a li\n{"MESSAGE": null}\n') == []


def test_journalctl_is_asked_for_a_unit_for_what_systemd_says_of_it_and_for_a_name():
    assert journal.matches("a.service") == ["_SYSTEMD_UNIT=a.service", "+", "UNIT=a.service"]
    assert journal.matches("a.service", "x")[-2:] == ["+", "SYSLOG_IDENTIFIER=x"]


def test_a_brokers_events_are_those_of_the_run_and_half_a_line_is_none(tmp_path):
    file = tmp_path / "landline-lifecycle.jsonl"
    assert collect.broker_events(file, "r2") == []
    file.write_text('{"id":"a:1","run_id":"r1"}\n{"id":"b:1","run_id":"r2"}\n{"id":"b:2","run_i')
    assert [event["id"] for event in collect.broker_events(file, "r2")] == ["b:1"]
