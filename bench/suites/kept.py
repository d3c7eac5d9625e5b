"""The memory that peers make a broker keep: its maximum, and what is left after they have gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bench import goals, machine
from bench.client import holding
from bench.client.batches import encode_batch
from bench.client.connection import leaders
from bench.client.group import await_coordinator
from bench.client.hostile import allow_files
from bench.client.transfer import produce
from bench.results import Better, Goal, Metric
from bench.targets import QUICK_DELETES, Target
from bench.visit import IN_FLIGHT, Visit, await_leaders, pause
from bench.workload import Stage, Suite, Values, Workload
from rig.brokers import BrokerProcess
from rig.processes import MIB
from rig.topics import create_topic, delete_topics

TOPIC: Final = "kept"
PARTITIONS: Final = 50
FILLED_MIB: Final = 16
LEAST: Final = 20
SETTLE_S: Final = 3.0
HELD_S: Final = 2.0
GONE_S, GONE_PROBE_S = 75.0, 0.5
REQUEST_MIB: Final = 64
CONNECTIONS_AT_ONCE: Final = 20_000

Holding = Callable[[BrokerProcess, int], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of state. ``holds`` makes the broker keep ``count`` items, and releases them at its end;
    None: idle TLS connections. ``bound``: the limit of the memory.
    """

    key: str
    title: str
    count: int
    bound: Goal
    holds: Holding | None
    config: Mapping[str, object] = field(default_factory=dict)


def _idle(broker: BrokerProcess, count: int) -> AbstractContextManager[None]:
    return holding.idle_connections(broker.port, count)


def _halves(broker: BrokerProcess, count: int) -> AbstractContextManager[None]:
    return holding.half_frames(broker.port, count)


@contextmanager
def _readers(broker: BrokerProcess, count: int) -> Iterator[None]:
    produce(leaders(broker.port, TOPIC), TOPIC, encode_batch(16 << 10), FILLED_MIB * MIB, IN_FLIGHT)
    with holding.deaf_readers(broker.port, TOPIC, count):
        yield


@contextmanager
def _producers(broker: BrokerProcess, count: int) -> Iterator[None]:
    holding.write_as_producers(broker.port, TOPIC, PARTITIONS, count)
    yield
    delete_topics(broker.bootstrap, [TOPIC])


@contextmanager
def _groups(broker: BrokerProcess, count: int) -> Iterator[None]:
    port = await_coordinator(broker.port, TOPIC)
    holding.commit_as_groups(port, TOPIC, TOPIC, count)
    yield
    holding.delete_the_groups(port, TOPIC, count)


ROWS: Final = (
    Row("idle", "{:,} idle connections", 10_000, goals.KEPT_IDLE, _idle),
    Row("tls", "{:,} idle TLS connections", 10_000, goals.KEPT_IDLE_TLS, None),
    Row(
        "halves",
        "{:,} halves of requests of 1 MiB",
        1_000,
        goals.KEPT_HALVES,
        _halves,
        {"queued.max.request.bytes": REQUEST_MIB * MIB, "socket.request.max.bytes": 2 * MIB},
    ),
    Row("readers", "{:,} readers that never read", 100, goals.KEPT_READERS, _readers),
    Row("producers", "{:,} producer ids", 1_000_000, goals.KEPT_PRODUCERS, _producers),
    Row("groups", "{:,} groups", 100_000, goals.KEPT_GROUPS, _groups),
)


def _run(row: Row, visit: Visit) -> Values:
    allow_files(CONNECTIONS_AT_ONCE)  # the limit also applies to the broker, a child of this process
    count = max(LEAST, round(row.count * visit.scale))
    with _new_broker(row, visit) as (broker, holds):
        broker.start()
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        await_leaders(broker, TOPIC, PARTITIONS)
        pause(visit.seconds(SETTLE_S))
        pid, before = broker.process.pid, broker.rss_mb()
        machine.begin_peak(pid)
        begin = time.perf_counter()
        with holds(count):
            seconds = time.perf_counter() - begin
            pause(visit.seconds(HELD_S))
            peak = machine.peak_mib(pid)
        after = _least_rss(visit, broker, before)
    return {
        f"kept.{row.key}.before": before,
        f"kept.{row.key}.peak": max(0.0, peak - before),
        f"kept.{row.key}.after": max(0.0, after - before),
        f"kept.{row.key}.seconds": seconds,
    }


@contextmanager
def _new_broker(
    row: Row, visit: Visit
) -> Iterator[tuple[BrokerProcess, Callable[[int], AbstractContextManager[None]]]]:
    """A broker that is not started, and what makes it keep so many items."""
    config = {**QUICK_DELETES, **row.config}
    if row.holds is None:
        with visit.new_secured(config) as (broker, tls):
            yield broker, partial(holding.idle_connections, tls.port, tls=tls.client)
        return
    with visit.new_brokers(config=config) as (broker,):
        yield broker, partial(row.holds, broker)


def _least_rss(visit: Visit, broker: BrokerProcess, before: float) -> float:
    """A broker may take a while to return memory."""
    end, least = time.monotonic() + visit.seconds(GONE_S), broker.rss_mb()
    while time.monotonic() < end and least > before:
        pause(GONE_PROBE_S)
        least = min(least, broker.rss_mb())
    return least


def _metrics(row: Row) -> tuple[Metric, ...]:
    key, title = f"kept.{row.key}", row.title.format(row.count)
    return (
        Metric(f"{key}.peak", f"{title}: memory that came to it", "MiB", Better.LOWER, row.bound),
        Metric(f"{key}.after", f"{title}: left when they have gone", "MiB", Better.LOWER, goals.GIVEN_BACK),
        Metric(f"{key}.before", f"{title}: memory before", "MiB", Better.LOWER, detail=True),
        Metric(f"{key}.seconds", f"{title}: until they were there", "s", Better.LOWER, detail=True),
    )


SUITE = Suite(
    "kept",
    "What peers make it hold",
    Stage.OWN,
    tuple(
        Workload(
            row.title.format(row.count),
            _metrics(row),
            partial(_run, row),
            repeats=False,
            targets=frozenset({Target.LANDLINE, Target.KAFKA}),
        )
        for row in ROWS
    ),
    "A broker of its own for each, from fifty addresses. The most resident memory at once less what there was before, "
    f"and the least within {GONE_S:.0f} s after connections were closed, the topic or the groups deleted. "
    f"The halves with queued.max.request.bytes of {REQUEST_MIB} MiB, else default settings. A JVM keeps its heap.",
)
