"""Landline's promises: the goal of each figure under one name. All "times" are against Kafka 3.9.1 in the
same run.
"""

from __future__ import annotations

from bench.results import Goal

NOT_BELOW = Goal(times=1)
AHEAD = Goal(times=1.25)
CPU_16_KIB = Goal(times=3)
CPU_128_KIB = Goal(times=2)
RATE_16_KIB = Goal(times=2.5)
RATE_128_KIB = Goal(times=1.8)
# Of two processes on two cores.
RATE_16_KIB_OF_TWO = Goal(times=4)
SENDFILE_SHARE = Goal(value=0.85)
# At most 0.45 of Kafka's.
CPU_FETCH = Goal(times=1 / 0.45)
RATE_OF_FEW = Goal(times=2.5)
RATE_OF_A_THOUSAND = Goal(times=1.2)
REPLICATED_CPU = Goal(times=2)
LATENCY_P50 = Goal(times=2)
LATENCY_P99 = Goal(times=1 / 0.3)
REPLICATED_LATENCY_P50 = Goal(times=1)
REPLICATED_LATENCY_P99 = Goal(times=2)
START = Goal(times=8)
START_EMPTY = Goal(value=0.15, times=8)
START_TO_ANSWER_S = Goal(value=0.5)
RSS_IDLE = Goal(times=8)
RSS_LOADED = Goal(times=15)
FSYNC = Goal(times=3)
FSYNC_OF_MANY = Goal(times=1.5)
TRANSACTION_CPU = Goal(times=2)
MANY_PARTITIONS = Goal(times=1)
# By the number of partitions and the operation; for all others Landline must not be behind.
MANY_PARTITIONS_S = {
    (10_000, "create"): Goal(value=10, times=1),
    (10_000, "clean"): Goal(value=3, times=1),
    (10_000, "killed"): Goal(value=5, times=1),
    (10_000, "stop"): Goal(value=1, times=1),
    (3_000, "failover"): Goal(value=2, times=1),
    (3_000, "client"): Goal(value=2, times=1),
}
BESIDE_HOSTILE_P99_MS = Goal(value=20, times=1)
BESIDE_HOSTILE_ALONE_P99_MS = Goal(value=20)
BESIDE_HOSTILE_TIMES_BEFORE = Goal(value=3)
# The limits of a broker's memory according to its configuration: 12 KiB for an idle connection, 20 KiB by
# TLS, the bytes of queued.max.request.bytes and their buffers, 64 KiB for a client that does not read, a
# kilobyte for a producer id of landline.producer.id.broker.max.count, 2.6 KB for a group of
# landline.group.max.count.
KEPT_IDLE = Goal(value=120)
KEPT_IDLE_TLS = Goal(value=200)
KEPT_HALVES = Goal(value=96)
KEPT_READERS = Goal(value=16)
KEPT_PRODUCERS = Goal(value=300)
KEPT_GROUPS = Goal(value=300)
GIVEN_BACK = Goal(value=32)
# What the authorizer, and each of the quotas, may add to a produce of 16 KiB.
SECURITY_PERCENT = Goal(value=3)
