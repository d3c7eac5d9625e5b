"""All suites, in the order of a visit: memory after all other load on the same broker, failover last."""

from __future__ import annotations

from bench.suites import (
    clients,
    compression,
    consume,
    durability,
    groups,
    kept,
    latency,
    many_partitions,
    memory,
    neighbour,
    partitions,
    replication,
    requests,
    scaling,
    security,
    startup,
    throughput,
    tls,
    transactions,
)
from bench.workload import Suite

SUITES: tuple[Suite, ...] = (
    startup.SUITE,
    throughput.SUITE,
    clients.SUITE,
    requests.SUITE,
    latency.SUITE,
    consume.SUITE,
    durability.SUITE,
    compression.SUITE,
    groups.SUITE,
    transactions.SUITE,
    memory.SUITE,
    neighbour.SUITE,
    kept.SUITE,
    tls.SUITE,
    security.SUITE,
    partitions.SUITE,
    many_partitions.SUITE,
    replication.SUITE,
    transactions.REPLICATED_SUITE,
    replication.FAILOVER_SUITE,
    scaling.SUITE,
)
