"""After a run, collects the events that brokers, ZooKeeper and Spark left on their hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from compare import journal, spark_log, steps
from compare.events import Event, Story
from compare.hosts import Hosts
from compare.members import PUSHED_ZOOKEEPER, Member
from compare.record import RunRecord
from compare.steps import ProcessLog
from lab.shell import run

BROKER_EVENTS = "var/lib/landline/broker-{}/landline-lifecycle.jsonl"
SPARK_LOGS = "var/log/spark"


def collect(hosts: Hosts, members: Sequence[Member], record: RunRecord, run_id: str) -> list[Event]:
    """The daemons' events of one run; all hosts must be on. Raises LabError, OSError."""
    found: list[Event] = []
    for member in members:
        if member.role == "broker":
            found += broker_events(hosts.root(member.host) / BROKER_EVENTS.format(member.instance), run_id)
        else:
            found += _read_events(hosts, member, record, run_id)
    return found


def broker_events(path: Path, run_id: str) -> list[Event]:
    """A broker's own events of this run; none without the file. Raises OSError."""
    if not path.exists():
        return []
    known = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # cut off by a power loss
            continue
        if isinstance(event, dict) and event.get("run_id") == run_id:
            known.append(event)
    return known


def _read_events(hosts: Hosts, member: Member, record: RunRecord, run_id: str) -> list[Event]:
    is_push = record.planned.model.is_push
    since_s = record.began_us // 1_000_000
    identifier = PUSHED_ZOOKEEPER if member.role == "zookeeper" else ""
    options = ["--output=json", f"--since=@{since_s}", *journal.matches(member.unit, identifier)]
    entries = journal.entries(run(hosts.lab.journal_argv(member.host, options)).stdout)
    begins_us = [
        launch.opened_us for launch in record.launches if launch.member == member and launch.opened_us
    ]
    begins_us += journal.starts_us(entries, member.unit)
    if member.role == "zookeeper":
        logs = journal.processes(entries)
    elif is_push:
        logs = _spark_files(hosts.root(member.host) / SPARK_LOGS, member.marks[0])
    else:
        logs = [_spark_lines(log) for log in journal.processes(entries)]
    wanted = sorted(
        (log for log in logs if log.lines and record.began_us <= log.lines[0].at_us <= record.ended_us),
        key=lambda log: log.lines[0].at_us,
    )
    events = []
    for number, log in enumerate(wanted, 1):
        start_id = f"{run_id}.{member.name}.{number}"
        boot_id = log.boot_id or record.boot_id(member.host, log.lines[0].at_us)
        model = str(record.planned.model)
        story = Story(run_id, start_id, member.host, member.role, member.instance, model, boot_id)
        events += steps.tell(story, log, steps.begun(log.lines, begins_us))
    return events


def _spark_lines(log: ProcessLog) -> ProcessLog:
    return ProcessLog(tuple(spark_log.lines(line.text for line in log.lines)), log.boot_id)


def _spark_files(directory: Path, name: str) -> list[ProcessLog]:
    """Each file is one process: ``spark-daemon.sh`` moves the previous process's file away."""
    files = directory.glob(f"*-{name}-1-*.out*")
    return [
        ProcessLog(tuple(spark_log.lines(file.read_text(encoding="utf-8", errors="replace").splitlines())))
        for file in files
    ]
