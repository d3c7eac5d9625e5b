"""Third-party clients as processes: Kafka's own ProducerPerformance and ConsumerPerformance, and
kcat (librdkafka).

Kafka's clients are those of 3.9.1 for every broker, with the JVM flags of their start scripts.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rig import kafka_dist

TIMEOUT_S = 300.0
TOOL_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
LINE_BYTES = 1024
_PRODUCED = re.compile(r"records sent, .*\(([\d.]+) MB/sec\)")


class ToolFailedError(RuntimeError):
    """The tool failed, or did not print its figures."""


def write_lines(path: Path, mib: int) -> None:
    """Writes ``mib`` MiB of lines of 1 KiB."""
    block = (b"x" * (LINE_BYTES - 1) + b"\n") * 1024
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(block)


def producer_performance(bootstrap: str, topic: str, records: int, props: Mapping[str, object]) -> float:
    """Runs kafka-producer-perf-test with records of 1 KiB; returns the MiB/s that it reports."""
    settings = [f"{key}={value}" for key, value in {"bootstrap.servers": bootstrap, **props}.items()]
    output = _java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--throughput", "-1"),
        *("--record-size", str(LINE_BYTES), "--producer-props", *settings),
    )
    if (found := _PRODUCED.findall(output)) and f"{records} records sent" in output:
        return float(found[-1])
    raise ToolFailedError(f"ProducerPerformance printed {output[-300:]!r}")


def consumer_performance(bootstrap: str, topic: str, records: int) -> float:
    """Runs kafka-consumer-perf-test over the topic's first ``records``; returns its fetch.MB.sec, which
    excludes joining.
    """
    output = _java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records)),
        *("--timeout", "30000", "--hide-header"),
    )
    fields = [line.split(", ") for line in output.splitlines() if line.count(", ") == 9]
    if not fields or int(fields[-1][4]) < records:
        raise ToolFailedError(f"ConsumerPerformance printed {output[-300:]!r}")
    return float(fields[-1][8])


def kcat_produce(bootstrap: str, topic: str, lines: Path) -> None:
    """Writes the lines of a file: batches of 128 KiB, linger 5 ms, acks=all."""
    settings = ("acks=all", "batch.size=131072", "linger.ms=5", "queue.buffering.max.messages=100000")
    options = [word for setting in settings for word in ("-X", setting)]
    _run(["kcat", "-P", "-q", "-b", bootstrap, "-t", topic, *options, "-l", str(lines)])


def kcat_consume(bootstrap: str, topic: str, records: int) -> None:
    """Reads this many records from the beginning of all partitions and discards them."""
    options = ("-X", "fetch.wait.max.ms=100", "-X", "queued.min.messages=1000000")
    command = [
        "kcat",
        "-C",
        "-q",
        "-c",
        str(records),
        "-o",
        "beginning",
        "-b",
        bootstrap,
        "-t",
        topic,
        *options,
    ]
    _run(command, discard=True)


def _java(main_class: str, *args: str) -> str:
    return _run(kafka_dist.java_command(main_class, *args, jvm=TOOL_JVM, log_target="System.err"))


def _run(command: list[str], *, discard: bool = False) -> str:
    """Megabytes of output are not worth reading."""
    out = subprocess.DEVNULL if discard else subprocess.PIPE
    done = subprocess.run(
        command, check=False, timeout=TIMEOUT_S, stdout=out, stderr=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise ToolFailedError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout or ""
