"""From exec to the first answer and to the first acknowledged produce: empty, with 500 segments, after
a kill.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import goals
from bench.client import transfer
from bench.client.batches import encode_batch
from bench.client.connection import Connection, acknowledged
from bench.client.requests import (
    RawClientError,
    create_topic_request,
    produce_request,
)
from bench.pages import touch_free_memory
from bench.results import Better, Goal, Metric
from bench.visit import IN_FLIGHT, Visit, await_leaders, killed_in_the_end, pause
from bench.workload import Stage, Suite, Values, Workload
from rig.brokers import HOST, BrokerProcess
from rig.processes import MIB
from rig.topics import create_topic
from rig.wire import answers_api_versions

STARTS = 3
START_TIMEOUT_S = 90.0
PROBE_INTERVAL_S = 0.002
SEGMENTS = 500
PARTITIONS = 4
TOPIC = "started"
SEGMENT_BYTES = MIB


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds from exec, and the CPU seconds until the produce was acknowledged."""

    answered_s: float
    acknowledged_s: float
    cpu_s: float


def _empty(visit: Visit) -> Values:
    starts = []
    for _ in range(STARTS):
        with visit.new_brokers() as (broker,):
            starts.append(_timed_start(broker, create=True))
    simplest = []
    for _ in range(STARTS):
        with visit.new_directory() as directory:
            broker = visit.factory.simplest(directory)
            with killed_in_the_end([broker]):
                simplest.append(_timed_start(broker, create=True))
    return {
        **_values("start_empty", starts),
        "start_simplest.answered": statistics.median(start.answered_s for start in simplest),
    }


def _segments(visit: Visit) -> Values:
    """Fills, kills, starts (recovery), stops, starts again (clean)."""
    batch = encode_batch(SEGMENT_BYTES)
    config = {"log.segment.bytes": SEGMENT_BYTES, "controlled.shutdown.enable": "false"}
    count = max(50, round(SEGMENTS * min(1.0, visit.scale)))
    with visit.new_brokers(config=config) as (broker,):
        broker.start()
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        touch_free_memory(count)
        transfer.produce(
            await_leaders(broker, TOPIC, PARTITIONS), TOPIC, batch, count * len(batch.data), IN_FLIGHT
        )
        broker.kill()
        visit.factory.forget_session(broker)
        killed = _timed_start(broker, create=False)
        broker.wait_ready()
        broker.stop()
        clean = _timed_start(broker, create=False)
    return {**_values("start_killed", [killed]), **_values("start_clean", [clean])}


def _timed_start(broker: BrokerProcess, *, create: bool) -> Start:
    """Starts the prepared broker; ``create``: the first produce needs its topic created first."""
    begin = time.perf_counter()
    broker.start_nowait()
    _poll(broker, begin, lambda: answers_api_versions(HOST, broker.port, timeout_s=1.0))
    answered = time.perf_counter() - begin
    if create:
        _poll(broker, begin, lambda: _created(broker.port))
    request = produce_request(TOPIC, 0, encode_batch(1))
    _poll(broker, begin, lambda: acknowledged(broker.port, TOPIC, request))
    return Start(answered, time.perf_counter() - begin, broker.cpu_seconds().total)


def _created(port: int) -> bool:
    """Whether the topic exists now; the answer ends in an array of name, error code and message."""
    connection = Connection(port)
    try:
        answer = connection.ask(create_topic_request(TOPIC, 1))
        at = 4 + 4 + 4 + 2 + len(TOPIC)
        return int.from_bytes(answer[at : at + 2], "big") in {0, 36}
    finally:
        connection.close()


def _poll(broker: BrokerProcess, begin: float, done: Callable[[], bool]) -> None:
    """Polls until it is true; any error means "not yet", as for a client."""
    while time.perf_counter() - begin < START_TIMEOUT_S:
        try:
            if done():
                return
        except (OSError, RawClientError):
            pass
        if not broker.process.running:
            break
        pause(PROBE_INTERVAL_S)
    raise TimeoutError(f"{broker.process.title} did not serve\n{broker.process.log_tail()}")


def _values(key: str, starts: list[Start]) -> Values:
    """The median of several starts, because one is easily disturbed."""
    return {
        f"{key}.answered": statistics.median(start.answered_s for start in starts),
        f"{key}.acknowledged": statistics.median(start.acknowledged_s for start in starts),
        f"{key}.cpu": statistics.median(start.cpu_s for start in starts),
    }


def _metrics(key: str, title: str, goal: Goal = goals.START) -> tuple[Metric, ...]:
    return (
        Metric(f"{key}.acknowledged", f"{title}, to an acknowledged produce", "s", Better.LOWER, goal),
        Metric(f"{key}.answered", f"{title}, to ApiVersions", "s", Better.LOWER),
        Metric(f"{key}.cpu", f"{title}: broker CPU", "CPU s", Better.LOWER),
    )


SUITE = Suite(
    "startup",
    "Start-up and recovery",
    Stage.OWN,
    (
        Workload(
            "start empty",
            (
                *_metrics("start_empty", "start, empty", goals.START_EMPTY),
                Metric(
                    "start_simplest.answered",
                    "start of the least that serves, to ApiVersions",
                    "s",
                    Better.LOWER,
                    goals.START_TO_ANSWER_S,
                ),
            ),
            _empty,
            repeats=False,
        ),
        Workload(
            f"start with {SEGMENTS} segments",
            (
                *_metrics("start_clean", f"start with {SEGMENTS} segments after a clean stop"),
                *_metrics("start_killed", f"start with {SEGMENTS} segments after a kill"),
            ),
            _segments,
            repeats=False,
        ),
    ),
    f"From exec. ZooKeeper is up already and KRaft's storage formatted; the least that serves is Landline standalone, "
    f"without ZooKeeper. Empty: the middle of {STARTS} starts, the topic is created as soon as it can be. Segments of "
    f"1 MiB, {PARTITIONS} partitions; the dead session of a killed broker is deleted from ZooKeeper first.",
)
