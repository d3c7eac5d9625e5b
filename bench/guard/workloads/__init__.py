"""The eleven workloads, one class each; ``workload`` is their base."""

from __future__ import annotations

from collections.abc import Sequence

from bench.guard.stage import Stage
from bench.guard.workloads.fetch import FollowerFetch, IdleSession, LargeFetch, WokenFetch
from bench.guard.workloads.groups import GroupHeartbeat, OffsetCommit
from bench.guard.workloads.metadata import NamedTopics
from bench.guard.workloads.produce import IdempotentProduce, Produce
from bench.guard.workloads.transactions import Transaction
from bench.guard.workloads.workload import Workload

KIB = 1024


def all_workloads(stage: Stage) -> Sequence[Workload]:
    """Sets up the eleven workloads on the broker."""
    return (
        Produce(stage, "produce-16k", 16 * KIB, acks=1, moving_share=0.4, per_slice=16),
        IdempotentProduce(stage, "produce-idempotent", 16 * KIB, moving_share=0.4, per_slice=12),
        Produce(stage, "produce-256k", 256 * KIB, acks=-1, moving_share=0.7, per_slice=4),
        WokenFetch(stage),
        LargeFetch(stage),
        FollowerFetch(stage),
        IdleSession(stage),
        NamedTopics(stage),
        OffsetCommit(stage),
        GroupHeartbeat(stage),
        Transaction(stage),
    )
