"""The same loads by TLS, handshakes, and what handshakes without end do to others."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack
from typing import Final

from bench import goals
from bench.client.batches import encode_batch
from bench.client.handshaking import Handshakes, shake_hands
from bench.client.hostile import HostilePeer, Tally
from bench.client.latency import end_to_end
from bench.client.process import ClientProcess
from bench.percentiles import summarise
from bench.results import Better, Metric
from bench.suites.neighbour import (
    BEFORE_S,
    HEAD_START_S,
    LEAST_S,
    ONE_S,
    PER_SECOND,
    RECORD_BYTES,
    TEN_S,
    US_PER_MS,
    Victim,
    times_beside,
)
from bench.suites.throughput import FETCH_BYTES, HOT_MIB, KIB, SHARED, produce_workload
from bench.targets import Target, TlsListener
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values

BY: Final = "TLS "
TARGETS: Final = frozenset({Target.LANDLINE, Target.KAFKA})
FETCH_MIB: Final = 2048
SHAKING_S: Final = 6.0
# More than one, so that no core waits for a client.
SHAKING: Final = 3


def _listener(visit: Visit) -> TlsListener:
    assert visit.tls is not None
    return visit.tls


def _fetch(visit: Visit) -> Values:
    batch = encode_batch(128 * KIB)
    topic = visit.filled_topic(batch, visit.mib(HOT_MIB), kept=SHARED)
    moved, usage = visit.measure(lambda: visit.fetch(topic, batch, visit.mib(FETCH_MIB), FETCH_BYTES))
    return rate_values("tls_fetch_1m", moved, usage)


def _handshakes(visit: Visit) -> Values:
    tls, seconds = _listener(visit), visit.seconds(SHAKING_S)
    shake_hands(tls.port, tls.client, seconds)  # for the JVM
    with ExitStack() as stack:
        clients = [
            stack.enter_context(ClientProcess(shake_hands, tls.port, tls.client, seconds))
            for _ in range(SHAKING)
        ]

        def shake() -> int:
            for client in clients:
                client.go()
            return sum(client.result() for client in clients)

        count, usage = visit.measure(shake)
    return {
        "tls_handshakes.rate": count / seconds,
        "tls_handshakes.cpu": usage.broker.total / count * 1000,
    }


class _Watch:
    """The victim's runs by TLS, one after the other, on one topic."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._tls = _listener(visit)
        self._batch = encode_batch(1, record_bytes=RECORD_BYTES)
        self._topic = visit.fresh_topic(1)
        self._written = 0

    def run(self, full_s: float, peers: int) -> tuple[list[float], Tally]:
        """The times (ms) of the victim's records beside this many peers, and the peers' tallies."""
        seconds, tls = max(LEAST_S, full_s * self._visit.scale), self._tls
        with ExitStack() as stack:
            hostile = [
                stack.enter_context(HostilePeer(Handshakes(tls.client), tls.port, seconds + 2 * HEAD_START_S))
                for _ in range(peers)
            ]
            victim = stack.enter_context(
                Victim(
                    end_to_end,
                    tls.port,
                    self._topic,
                    self._batch,
                    PER_SECOND,
                    seconds,
                    begin=self._written,
                    tls=tls.client,
                )
            )
            times, tally = times_beside(victim, hostile)
        self._written += len(times.read_us)
        return [each / US_PER_MS for each in (*times.acked_us, *times.read_us)], tally


def _beside_handshakes(visit: Visit) -> Values:
    multiprocessing.get_context("forkserver").set_forkserver_preload(["bench.__main__"])
    watch = _Watch(visit)
    quiet, _ = watch.run(BEFORE_S, 0)
    values = {"tls_beside.before.p99": summarise(quiet).p99}
    for name, seconds, peers in (("one", ONE_S, 1), ("ten", TEN_S, 10)):
        beside, tally = watch.run(seconds, peers)
        values |= {
            f"tls_beside.{name}.p99": summarise(beside).p99,
            f"tls_beside.{name}.answered": tally.answered,
        }
    return values


def _beside_metrics() -> tuple[Metric, ...]:
    title, found = "others beside endless handshakes", []
    for name, text in (("one", "one client"), ("ten", "ten clients")):
        p99 = f"{title} of {text}: p99"
        found += [
            Metric(f"tls_beside.{name}.p99", p99, "ms", Better.LOWER, goals.BESIDE_HOSTILE_ALONE_P99_MS),
            Metric(
                f"tls_beside.{name}.answered",
                f"endless handshakes of {text}: how many",
                "handshakes",
                Better.HIGHER,
                detail=True,
            ),
        ]
    before = Metric("tls_beside.before.p99", f"{title}: p99 before", "ms", Better.LOWER, detail=True)
    return (*found, before)


SUITE = Suite(
    "tls",
    "TLS",
    Stage.TLS,
    (
        produce_workload(16, -1, 512, goals.NOT_BELOW, goals.NOT_BELOW, by=BY, targets=TARGETS),
        produce_workload(128, -1, 1024, goals.NOT_BELOW, goals.NOT_BELOW, by=BY, targets=TARGETS),
        Workload(
            "TLS fetch 1 MiB",
            rate_metrics("tls_fetch_1m", "TLS fetch 1 MiB", goals.NOT_BELOW, goals.NOT_BELOW),
            _fetch,
            targets=TARGETS,
        ),
        Workload(
            "TLS handshakes",
            (
                Metric(
                    "tls_handshakes.rate", "TLS handshakes", "handshakes/s", Better.HIGHER, goals.NOT_BELOW
                ),
                Metric(
                    "tls_handshakes.cpu",
                    "TLS handshakes: broker CPU",
                    "ms/handshake",
                    Better.LOWER,
                    goals.NOT_BELOW,
                ),
            ),
            _handshakes,
            targets=TARGETS,
        ),
        Workload(
            "endless TLS handshakes", _beside_metrics(), _beside_handshakes, repeats=False, targets=TARGETS
        ),
    ),
    "TLS 1.3 with AES-256-GCM, a P-256 key, no client certificate; the loads of the raw client as above. Handshakes "
    f"are in full, each with one small request, by {SHAKING} clients at once. Beside endless handshakes, a client "
    f"writes {PER_SECOND} records of {RECORD_BYTES} B a second by TLS and reads them, as beside hostile peers.",
)
