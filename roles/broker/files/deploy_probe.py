"""What a deploy costs clients: writes to a topic of its own and reads from it meanwhile, on the controller.

    deploy_probe.py begin DIRECTORY    reads a client's settings as JSON from the standard input, and goes on by itself
    deploy_probe.py end DIRECTORY      has it end, and prints what it found in three lines

It leaves cost.json and cost.html in the directory. It ends with the ansible-playbook that began it, however that ends.
It begins when a broker serves it, and `begin` waits some seconds for that: what comes next may be over soon. The first
one of a directory is the only one: hosts go on by themselves, and the first with a change begins. Without
confluent-kafka, or if no broker serves it, it says so and measures nothing.
"""

from __future__ import annotations

import html
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

TOPIC = "landline.probe"
MOST_PARTITIONS = 12
# Seconds between two records of a partition, and of silence from which on it is a gap worth to be listed.
INTERVAL_S = 0.1
GAP_S = 0.5
REACH_S = 15.0
# Of one try to reach a broker.
TRY_S = 5.0
END_S = 30.0
# That a change waits for the first record, at most.
READY_S = 10.0
LONGEST_S = 6 * 3600.0
PROTOCOLS = {"none": "PLAINTEXT", "tls": "SSL", "sasl_ssl": "SASL_SSL"}

Report = dict[str, Any]


# -- what was found


def percentile(values: Sequence[float], part: float) -> float:
    """The value that this part of all is not above; 0 without values."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0


def gaps(times: Mapping[int, Sequence[float]]) -> list[tuple[float, int, float]]:
    """The gaps between the times of each partition: seconds, partition, and when it began; the longest first."""
    found = [
        (after - before, partition, before)
        for partition, row in times.items()
        for before, after in itertools.pairwise(row)
    ]
    return sorted(found, reverse=True)


class Findings:
    """What the probe met; times are seconds of the clock since the epoch."""

    def __init__(self) -> None:
        self.began = time.time()
        self.written: dict[int, list[float]] = {}
        self.read: dict[int, list[float]] = {}
        self.latencies: list[float] = []
        self.acked: set[int] = set()
        self.seen: set[int] = set()
        self.failed: list[str] = []
        self.stopped = self.began

    def _gaps(self, times: Mapping[int, Sequence[float]]) -> list[tuple[float, int, float]]:
        """The gaps, also those from the beginning, and those that had not ended."""
        return gaps(
            {number: [self.began, *row, max([self.stopped, *row[-1:]])] for number, row in times.items()}
        )

    def report(self) -> Report:
        """The findings as they are written."""
        ended = time.time()
        writes, reads = self._gaps(self.written), self._gaps(self.read)
        rows = [
            {"what": what, "partition": partition, "began": round(began, 3), "seconds": round(seconds, 3)}
            for what, found in (("writing", writes), ("reading", reads))
            for seconds, partition, began in found
            if seconds >= GAP_S
        ]
        return {
            "topic": TOPIC,
            "partitions": len(self.written),
            "began": round(self.began, 3),
            "seconds": round(ended - self.began, 1),
            "acknowledged": len(self.acked),
            "failed": len(self.failed),
            "failures": self.failed[:5],
            "not_read": len(self.acked - self.seen),
            "p50_ms": round(percentile(self.latencies, 0.5) * 1000, 1),
            "p99_ms": round(percentile(self.latencies, 0.99) * 1000, 1),
            "slowest_ms": round(max(self.latencies, default=0.0) * 1000, 1),
            "longest_gap_writing_s": round(writes[0][0], 3) if writes else 0.0,
            "longest_gap_reading_s": round(reads[0][0], 3) if reads else 0.0,
            "gaps": rows,
        }


def in_lines(report: Report, page: Path) -> list[str]:
    """The report in three lines, or the reason why there is none in one."""
    if "skipped" in report:
        return [f"What it cost clients was not measured: {report['skipped']}"]
    count = len([row for row in report["gaps"] if row["what"] == "writing"])
    whose = f"by a producer and a consumer of {report['topic']} for {report['seconds']:.0f} s"
    records = f"{report['acknowledged']} records acknowledged, {report['failed']} failed, {report['not_read']} not read"
    longest = (
        f"{report['longest_gap_writing_s']:.2f} s writing, {report['longest_gap_reading_s']:.2f} s reading"
    )
    times = f"{report['p50_ms']:.0f} ms (median), {report['p99_ms']:.0f} (p99), {report['slowest_ms']:.0f} (slowest)"
    return [
        f"What it cost clients, {whose}: {records}",
        f"longest gap {longest}; {count} gaps of {GAP_S:g} s or more writing",
        f"acknowledged within {times}; page: {page}",
    ]


def page(report: Report) -> str:
    """The report as a page of HTML."""
    rows = "".join(
        f"<tr><td>{row['what']}<td>{row['partition']}<td>{time.strftime('%H:%M:%S', time.localtime(row['began']))}"
        f"<td>{row['seconds']:.2f} s"
        for row in sorted(report.get("gaps", []), key=lambda row: float(row["began"]))
    )
    figures = "".join(
        f"<tr><th>{html.escape(key.replace('_', ' '))}<td>{html.escape(str(value))}"
        for key, value in report.items()
        if not isinstance(value, list)
    )
    reasons = "".join(f"<li>{html.escape(reason)}" for reason in report.get("failures", []))
    table = f"<table><tr><th>gap<th>partition<th>at<th>for{rows}</table>" if rows else "<p>None.</p>"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>What a deploy cost clients</title>'
        '<meta name="viewport" content="width=device-width"><style>:root{color-scheme:light dark}'
        "body{font:1rem/1.5 system-ui;margin:2rem auto;max-width:50rem;padding:0 1rem}"
        "td,th{padding:.1rem 1rem .1rem 0;text-align:left}</style>"
        f"<h1>What a deploy cost clients</h1><table>{figures}</table>"
        f"<h2>Gaps of {GAP_S:g} s or more</h2>{table}"
        + (f"<h2>Failed</h2><ul>{reasons}</ul>" if reasons else "")
    )


def write(directory: Path, report: Report) -> None:
    """Writes the report. The JSON file comes last: it says that all is there."""
    (directory / "cost.html").write_text(page(report), encoding="utf-8")
    beside = directory / "cost.json.new"
    beside.write_text(f"{json.dumps(report, indent=2)}\n", encoding="utf-8")
    beside.replace(directory / "cost.json")


# -- the probe


def librdkafka(settings: Mapping[str, str]) -> dict[str, Any]:
    """The role's settings for clients with librdkafka's names."""
    found: dict[str, Any] = {
        "bootstrap.servers": settings["bootstrap"],
        "security.protocol": PROTOCOLS[settings["mode"]],
        # What librdkafka logs goes nowhere, and it reports the same by its answers.
        "log_level": 0,
    }
    if settings["mode"] != "none":
        found["ssl.ca.pem"] = settings["trusted"]
    if settings["mode"] == "sasl_ssl":
        found |= {
            "sasl.mechanisms": settings["mechanism"],
            "sasl.username": settings["user"],
            "sasl.password": settings["password"],
        }
    return found


class Skip(Exception):
    """Nothing is measured; the message says why."""


def partitions_of(config: Mapping[str, Any]) -> int:
    """The number of the topic's partitions, all of which are served; it is created if it is missing. Raises Skip."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    try:
        admin = AdminClient(dict(config))
        metadata = admin.list_topics(timeout=TRY_S)
        if TOPIC not in metadata.topics:
            # Brokers that have not come to this listener yet are not in the answer.
            known = max(len(metadata.brokers), len(config["bootstrap.servers"].split(",")))
            count = min(known, MOST_PARTITIONS)
            # With one replica in sync it is content, so that it never forbids a broker's stop.
            new = NewTopic(TOPIC, count, -1, config={"retention.ms": "3600000", "min.insync.replicas": "1"})
            try:
                admin.create_topics([new], operation_timeout=TRY_S)[TOPIC].result(TRY_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            raise Skip(f"{TOPIC} has just been created")
        topic = metadata.topics[TOPIC]
        if topic.error is not None:
            raise Skip(f"{TOPIC}: {topic.error.str()}")
        leaderless = sorted(number for number, each in topic.partitions.items() if each.leader < 0)
        if leaderless:
            # Where its leader does not listen yet, a client of this listener had nothing to lose.
            raise Skip(f"{TOPIC}: partitions {leaderless} have no leader at this listener")
        return len(topic.partitions)
    except (KafkaException, TimeoutError) as error:
        # Also of a controller that does not listen yet where the others do.
        why = error.args[0].str() if isinstance(error, KafkaException) else f"no {TOPIC} within {TRY_S:g} s"
        raise Skip(f"{why} ({config['bootstrap.servers']}, asked from this machine)") from error


def reached(ask: Callable[[], int], goes_on: Iterator[bool]) -> int:
    """Returns what `ask` does, which is tried until `goes_on` ends: a listener or the user may come with the roll that
    is measured. Raises the last Skip.
    """
    why = Skip("the run ended before it began")
    while next(goes_on, False):
        try:
            return ask()
        except Skip as error:
            why = error
            time.sleep(INTERVAL_S)
    raise why


def probe(
    config: Mapping[str, Any], partitions: int, goes_on: Iterator[bool], measures: Callable[[], None]
) -> Report:
    """Writes and reads until `goes_on` ends; returns the report. Calls `measures` when a gap would be seen."""
    from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition

    findings = Findings()
    run = f"{os.getpid()}-{findings.began}"
    more = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 120_000}
    producer = Producer({**config, **more})
    consumer = Consumer({**config, "group.id": "landline.probe", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_END) for number in range(partitions)])
    findings.written = {number: [] for number in range(partitions)}
    findings.read = {number: [] for number in range(partitions)}

    def note(number: int, partition: int, sent: float, error: Any, _message: Any) -> None:
        if error is not None:
            findings.failed.append(str(error))
            return
        now = time.time()
        findings.acked.add(number)
        findings.latencies.append(now - sent)
        findings.written[partition].append(now)

    def read(timeout_s: float) -> None:
        message = consumer.poll(timeout_s)
        if message is None or message.error() is not None:
            return
        told, _unused, number = (message.value() or b"").decode(errors="replace").rpartition(" ")
        if told == run:
            findings.seen.add(int(number))
            findings.read[int(message.partition() or 0)].append(time.time())

    numbers, due = itertools.count(), time.monotonic()
    # The consumer begins at the end that it finds: what is written before that is not read.
    ready_at = time.monotonic() + REACH_S
    while not _has_position(consumer) and time.monotonic() < ready_at:
        consumer.poll(0.1)
    findings.began = findings.stopped = time.time()
    measures()
    while next(goes_on, False):
        if time.monotonic() >= due:
            due += INTERVAL_S
            for partition in range(partitions):
                number = next(numbers)
                noted = partial(note, number, partition, time.time())
                with suppress(BufferError):
                    producer.produce(TOPIC, f"{run} {number}", partition=partition, on_delivery=noted)
        producer.poll(0)
        read(0.01)
    findings.stopped = time.time()
    producer.flush(END_S / 2)
    until = time.monotonic() + END_S / 3
    while findings.acked - findings.seen and time.monotonic() < until:
        read(0.1)
    with suppress(KafkaException):
        consumer.close()
    return findings.report()


def _has_position(consumer: Any) -> bool:
    from confluent_kafka import KafkaException

    try:
        low_and_high = [consumer.get_watermark_offsets(each, cached=True) for each in consumer.assignment()]
    except KafkaException:
        return False
    return all(high >= 0 for _unused, high in low_and_high)


# -- its life


def ancestor() -> int:
    """The process of ansible-playbook that this one is of; else the caller's parent."""
    found, pid = os.getppid(), os.getppid()
    while pid > 1:
        told = subprocess.run(
            ["ps", "-o", "ppid=,args=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        parent, _unused, command = told.stdout.strip().partition(" ")
        if "ansible-playbook" in command:
            found = pid
        elif found != os.getppid():
            break
        pid = int(parent) if parent.isdecimal() else 0
    return found


def goes_on(directory: Path, caller: int) -> Iterator[bool]:
    """Yields until it is told to end, or the run that began it is gone."""
    until, look_at = time.monotonic() + LONGEST_S, 0.0
    while True:
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + 1.0
            if (directory / "end").exists() or time.monotonic() > until or not _lives(caller):
                return
        yield True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def await_measuring(directory: Path) -> None:
    """Waits until the probe of a directory measures, or has found that it cannot, or might take longer."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until and not any(
        (directory / name).exists() for name in ("measuring", "cost.json")
    ):
        time.sleep(INTERVAL_S)


def begin(directory: Path) -> None:
    """Measures in a process of its own, if none does yet."""
    settings = json.load(sys.stdin)
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        await_measuring(directory)
        return
    caller = ancestor()
    if os.fork():
        await_measuring(directory)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    try:
        config = librdkafka(settings)
        going = goes_on(directory, caller)
        partitions = reached(partial(partitions_of, config), going)
        report = probe(config, partitions, going, (directory / "measuring").touch)
    except Skip as error:
        report = {"skipped": str(error)}
    except ImportError as error:
        report = {"skipped": f"{error}: the Python of ansible-playbook has no confluent-kafka"}
    except Exception as error:  # whatever it is, it is said
        report = {"skipped": repr(error)}
    with suppress(OSError):
        write(directory, report)
    os._exit(0)


def end(directory: Path) -> list[str]:
    """Has the probe end; returns what it found in lines."""
    (directory / "end").touch()
    until = time.monotonic() + END_S + REACH_S
    while not (directory / "cost.json").exists():
        if time.monotonic() > until:
            return [f"What it cost clients was not measured: the probe wrote nothing into {directory}"]
        time.sleep(0.1)
    return in_lines(json.loads((directory / "cost.json").read_text()), directory / "cost.html")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("begin", "end"):
        sys.exit(__doc__)
    place = Path(sys.argv[2])
    if sys.argv[1] == "begin":
        begin(place)
    else:
        sys.stdout.write("\n".join(end(place)) + "\n")
