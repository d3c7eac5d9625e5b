"""Three replicas on three brokers, acks=all: throughput, the brokers' total CPU, latency, and a
leader's death.
"""

from __future__ import annotations

import time

from bench import goals
from bench.client import transfer
from bench.client.batches import encode_batch
from bench.client.connection import acknowledged, leaders
from bench.client.requests import RawClientError, produce_request
from bench.pages import touch_free_memory
from bench.results import Better, Goal, Metric
from bench.suites.latency import REPLICATED_PER_SECOND, latency_workload
from bench.visit import IN_FLIGHT, Visit, pause
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from rig.processes import MIB
from rig.topics import await_full_isr

REPLICAS = 3
RETRY_S = 0.02
FAILOVER_TIMEOUT_S = 90.0


def _produce(kib: int, mib: int, cpu: Goal | None) -> Workload:
    key = f"replicated_{kib}k"
    title = f"produce {kib} KiB batches, RF 3"
    batch = encode_batch(kib * 1024)

    def run(visit: Visit) -> Values:
        size = visit.mib(mib)
        topic = visit.fresh_topic(replicas=REPLICAS)
        ports = visit.leaders(topic)
        touch_free_memory(size * REPLICAS)
        moved, usage = visit.measure(lambda: transfer.produce(ports, topic, batch, size * MIB, IN_FLIGHT))
        return rate_values(key, moved, usage)

    return Workload(title, rate_metrics(key, title, None, cpu), run)


def _failover(visit: Visit) -> Values:
    """Kills a partition's leader, and writes to the next leader as soon as there is one."""
    topic = visit.fresh_topic(1, REPLICAS)
    await_full_isr(visit.bootstrap, topic, REPLICAS)
    old = visit.leaders(topic)[0]
    request = produce_request(topic, 0, encode_batch(1))
    acknowledged(old, topic, request)
    killed = next(broker for broker in visit.brokers if broker.port == old)
    witness = next(broker for broker in visit.brokers if broker.port != old)
    start = time.perf_counter()
    killed.kill()
    while time.perf_counter() - start < FAILOVER_TIMEOUT_S:
        try:
            port = leaders(witness.port, topic).get(0)
            if port is not None and port != old and acknowledged(port, topic, request):
                return {"failover.gap": time.perf_counter() - start}
        except (OSError, RawClientError):
            pass
        pause(RETRY_S)
    raise TimeoutError(f"nobody led {topic} within {FAILOVER_TIMEOUT_S:.0f} s")


SUITE = Suite(
    "replication",
    "Three replicas on three brokers",
    Stage.THREE,
    (
        _produce(16, 128, goals.REPLICATED_CPU),
        _produce(128, 384, goals.REPLICATED_CPU),
        latency_workload(
            "latency_rf3",
            "end to end, RF 3",
            REPLICAS,
            goals.REPLICATED_LATENCY_P50,
            goals.REPLICATED_LATENCY_P99,
        ),
    ),
    f"acks=all, 3 partitions, CPU summed over the brokers; latency at {REPLICATED_PER_SECOND} records a second.",
)
FAILOVER_SUITE = Suite(
    "failover",
    "A leader's death",
    Stage.THREE,
    (
        Workload(
            "failover gap",
            (
                Metric(
                    "failover.gap",
                    "from SIGKILL of a leader to the next acknowledged produce",
                    "s",
                    Better.LOWER,
                ),
            ),
            _failover,
            repeats=False,
        ),
    ),
    "Default settings (ZooKeeper's session 18 s, KRaft's 9 s), and nobody but the cluster itself notices the death: "
    "deployed by its role, Landline's unit ends the session at once, see docs/reliability.md.",
)
