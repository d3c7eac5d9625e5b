"""A victim that writes and reads small records, before and while hostile peers do the worst that an
API allows.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import ClassVar

from bench import goals, machine
from bench.client.batches import Batch, encode_batch
from bench.client.hostile import HostilePeer, Page, Tally
from bench.client.latency import EndToEnd, end_to_end
from bench.client.process import ClientProcess
from bench.hostile_arrays import Place, Row
from bench.hostilities import ROWS
from bench.percentiles import summarise
from bench.results import Better, Metric
from bench.visit import Visit, pause
from bench.workload import Stage, Suite, Values, Workload
from rig.landline_broker import LandlineBroker

RECORD_BYTES = 100
PER_SECOND = 100
BEFORE_S, ONE_S, TEN_S = 4.0, 6.0, 8.0
LEAST_S = 0.3
ONE, TEN = 1, 10
HEAD_START_S = 0.3
TALLY_S = 1.0
# Work that peers have left in the broker's queues must not affect the next row.
CALM_CORES, CALM_PROBE_S, CALM_TIMEOUT_S = 0.3, 0.25, 20.0
US_PER_MS = 1000


class Victim(ClientProcess[EndToEnd]):
    """A victim's process."""

    context: ClassVar = multiprocessing.get_context("forkserver")


def times_beside(victim: Victim, hostile: Sequence[HostilePeer]) -> tuple[EndToEnd, Tally]:
    """The victim's times beside these peers, which begin first, and the sum of the peers' tallies."""
    for peer in hostile:
        peer.go()
    pause(HEAD_START_S if hostile else 0.0)
    victim.go()
    times = victim.result()
    return times, sum((peer.result() for peer in hostile if peer.done_within(TALLY_S)), Tally())


class _Watch:
    """The victim's runs, one after the other, on one topic."""

    def __init__(self, visit: Visit, row: Row) -> None:
        self._visit = visit
        self._row = row
        self._batch: Batch = encode_batch(1, record_bytes=RECORD_BYTES)
        self._topic = visit.fresh_topic(1)
        self._port = visit.leaders(self._topic)[0]
        self._own = row.prepare(visit, self._topic)
        self._written = 0

    def run(self, full_s: float, peers: int) -> tuple[list[float], Tally]:
        """The times (ms) of the victim's records, written and read, beside this many peers, and the
        peers' tallies.
        """
        seconds = max(LEAST_S, full_s * self._visit.scale)
        with ExitStack() as stack:
            hostile = [stack.enter_context(self._peer(number, seconds)) for number in range(peers)]
            victim = stack.enter_context(
                Victim(
                    end_to_end, self._port, self._topic, self._batch, PER_SECOND, seconds, begin=self._written
                )
            )
            times, tally = times_beside(victim, hostile)
        self._written += len(times.read_us)
        _calm(self._visit)
        return [each / US_PER_MS for each in (*times.acked_us, *times.read_us)], tally

    def _peer(self, number: int, seconds: float) -> HostilePeer:
        does = self._row.does(Place(self._topic, self._own, number))
        port = self._port
        if isinstance(does, Page):
            assert isinstance(self._visit.broker, LandlineBroker)
            port = self._visit.broker.http_port
        return HostilePeer(does, port, seconds + 2 * HEAD_START_S)


def _calm(visit: Visit) -> None:
    """Waits until the broker is idle."""
    pid, end = visit.broker.process.pid, time.monotonic() + CALM_TIMEOUT_S
    while time.monotonic() < end:
        before = machine.run_seconds(pid)
        pause(CALM_PROBE_S)
        if machine.run_seconds(pid) - before < CALM_CORES * CALM_PROBE_S:
            return


def _run(row: Row, visit: Visit) -> Values:
    multiprocessing.get_context("forkserver").set_forkserver_preload(["bench.__main__"])
    watch = _Watch(visit, row)
    quiet, _ = watch.run(BEFORE_S, 0)
    before = summarise(quiet)
    values = {f"{row.key}.before.p50": before.p50, f"{row.key}.before.p99": before.p99}
    process = visit.broker.process
    for name, seconds, peers in (("one", ONE_S, ONE), ("ten", TEN_S, TEN)):
        rss = visit.broker.rss_mb()
        machine.begin_peak(process.pid)
        try:
            beside, tally = watch.run(seconds, peers)
        except Exception:
            if process.running:
                raise
            return values | {
                f"{row.key}.ended": 1.0
            }  # the other figures are missing, and another broker is started
        times = summarise(beside)
        values |= {
            f"{row.key}.{name}.p50": times.p50,
            f"{row.key}.{name}.p99": times.p99,
            f"{row.key}.{name}.worst": times.greatest,
            f"{row.key}.{name}.times": times.p99 / before.p99,
            f"{row.key}.{name}.answered": tally.answered,
            f"{row.key}.{name}.closed": tally.closed,
            f"{row.key}.{name}.rss": max(0.0, machine.peak_mib(process.pid) - rss),
        }
    return values | {f"{row.key}.ended": 0.0 if process.running else 1.0}


def _metrics(row: Row) -> tuple[Metric, ...]:
    found = [
        Metric(f"{row.key}.before.p50", f"{row.title}: before, p50", "ms", Better.LOWER, detail=True),
        Metric(f"{row.key}.before.p99", f"{row.title}: before, p99", "ms", Better.LOWER, detail=True),
    ]
    alone = len(row.targets) == 1
    goal = goals.BESIDE_HOSTILE_ALONE_P99_MS if alone else goals.BESIDE_HOSTILE_P99_MS
    for name, beside in (("one", f"{row.title}: beside one"), ("ten", f"{row.title}: beside ten")):
        key = f"{row.key}.{name}"
        found += [
            Metric(f"{key}.p99", f"{beside}, p99", "ms", Better.LOWER, goal),
            Metric(
                f"{key}.times",
                f"{beside}, p99",
                "times before",
                Better.LOWER,
                goals.BESIDE_HOSTILE_TIMES_BEFORE,
            ),
            Metric(f"{key}.p50", f"{beside}, p50", "ms", Better.LOWER, detail=True),
            Metric(f"{key}.worst", f"{beside}, worst", "ms", Better.LOWER, detail=True),
            Metric(f"{key}.answered", f"{beside}, that got answers", "answers", Better.HIGHER, detail=True),
            Metric(f"{key}.closed", f"{beside}, that were put out", "times", Better.LOWER, detail=True),
            Metric(
                f"{key}.rss", f"{beside}, memory that came to it at most", "MiB", Better.LOWER, detail=True
            ),
        ]
    found.append(
        Metric(
            f"{row.key}.ended", f"{row.title}: brokers that it ended", "brokers", Better.LOWER, detail=True
        )
    )
    return tuple(found)


SUITE = Suite(
    "neighbour",
    "A victim beside hostile peers",
    Stage.ONE,
    tuple(
        Workload(row.title, _metrics(row), partial(_run, row), repeats=False, targets=row.targets)
        for row in ROWS
    ),
    f"The victim writes {PER_SECOND} records of {RECORD_BYTES} B a second, acks=all, and reads them; its times count "
    "from the moments at which records are due, until they are acknowledged and until they are read. One hostile "
    "peer, then ten, each a process that sends the same request again and again with the lowest of priorities. "
    "Kafka has no HTTP endpoint.",
)
