"""The loads: each fills or reads a topic and returns how many bytes of records went over the wire."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import raw
from tests.support.brokers import HOST
from tests.support.processes import MIB

PARTITIONS = 3
IN_FLIGHT = 5
FETCH_BYTES = MIB
KCAT_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each load moves, in MiB."""

    warm_up: int
    small_batches: int
    large_batches: int
    fetch: int
    librdkafka: int


FULL = Sizes(warm_up=1024, small_batches=512, large_batches=1536, fetch=4096, librdkafka=768)
QUICK = Sizes(warm_up=192, small_batches=96, large_batches=256, fetch=1024, librdkafka=192)


@dataclass(frozen=True, slots=True)
class Load:
    """One load: ``key`` names its metrics, ``topic`` what it works on; ``fills`` whether the topic must be new."""

    key: str
    title: str
    topic: str
    mib: Callable[[Sizes], int]
    run: Callable[[int, int, Path], int]
    """From port, MiB and a file of lines to the bytes moved."""
    fills: bool = True


def produce_raw(topic: str, batch_bytes: int) -> Callable[[int, int, Path], int]:
    """Prepared batches over one connection per partition, five requests in flight on each, acks=all."""
    batch = raw.encode_batch(batch_bytes)

    def run(port: int, mib: int, _: Path) -> int:
        return raw.produce(HOST, port, topic, PARTITIONS, batch, mib * MIB, IN_FLIGHT)

    return run


def fetch_raw(topic: str, batch_bytes: int) -> Callable[[int, int, Path], int]:
    """Fetches of 1 MiB of what ``produce_raw`` wrote."""
    batch = raw.encode_batch(batch_bytes)

    def run(port: int, mib: int, _: Path) -> int:
        return raw.fetch(HOST, port, topic, PARTITIONS, batch, mib * MIB, FETCH_BYTES)

    return run


def produce_kcat(topic: str) -> Callable[[int, int, Path], int]:
    """librdkafka, through kcat: lines of 1 KiB, batches of 128 KiB, linger 5 ms, acks=all."""

    def run(port: int, mib: int, lines: Path) -> int:
        settings = ["acks=all", "batch.size=131072", "linger.ms=5", "queue.buffering.max.messages=100000"]
        options = [word for setting in settings for word in ("-X", setting)]
        command = ["kcat", "-P", "-q", "-b", f"{HOST}:{port}", "-t", topic, *options, "-l", str(lines)]
        subprocess.run(command, check=True, timeout=KCAT_TIMEOUT_S)
        return mib * MIB

    return run


def consume_kcat(topic: str) -> Callable[[int, int, Path], int]:
    """librdkafka, through kcat: all partitions from the beginning to the end, output thrown away."""

    def run(port: int, mib: int, _: Path) -> int:
        command = ["kcat", "-C", "-q", "-e", "-o", "beginning", "-b", f"{HOST}:{port}", "-t", topic]
        options = ["-X", "fetch.wait.max.ms=100", "-X", "queued.min.messages=1000000"]
        subprocess.run([*command, *options], check=True, timeout=KCAT_TIMEOUT_S, stdout=subprocess.DEVNULL)
        return mib * MIB

    return run


def write_lines(path: Path, mib: int) -> None:
    """Writes kcat's input: ``mib`` MiB of lines of 1 KiB."""
    block = (b"x" * 1023 + b"\n") * 1024
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(block)


LOADS = (
    Load(
        "produce_16k",
        "produce 16 KiB, raw",
        "small",
        lambda s: s.small_batches,
        produce_raw("small", 16 * 1024),
    ),
    Load(
        "produce_128k",
        "produce 128 KiB, raw",
        "large",
        lambda s: s.large_batches,
        produce_raw("large", 128 * 1024),
    ),
    Load(
        "fetch_1m",
        "fetch 1 MiB, raw",
        "large",
        lambda s: s.fetch,
        fetch_raw("large", 128 * 1024),
        fills=False,
    ),
    Load(
        "produce_librdkafka",
        "produce 128 KiB, librdkafka",
        "lines",
        lambda s: s.librdkafka,
        produce_kcat("lines"),
    ),
    Load(
        "fetch_librdkafka",
        "consume, librdkafka",
        "lines",
        lambda s: s.librdkafka,
        consume_kcat("lines"),
        fills=False,
    ),
)
WARM_UP = Load("warm_up", "warm-up", "warm", lambda s: s.warm_up, produce_raw("warm", 16 * 1024))
WARM_UP_FETCH = Load(
    "warm_up_fetch", "warm-up", "warm", lambda s: s.warm_up, fetch_raw("warm", 16 * 1024), fills=False
)
