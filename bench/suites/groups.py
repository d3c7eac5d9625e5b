"""A consumer group of 50 members: all join at once, then one more, repeatedly."""

from __future__ import annotations

import statistics

from bench.client.group import Group, await_coordinator
from bench.results import Better, Metric
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload

MEMBERS = 50
REBALANCES = 5
MS = 1000


def _rebalance(visit: Visit) -> Values:
    name = visit.fresh_topic(1)
    group = Group(await_coordinator(visit.broker.port, name), name)
    try:
        return _rounds(visit, group)
    finally:
        group.close()


def _rounds(visit: Visit, group: Group) -> Values:
    group.add(1)
    group.settle()

    def join() -> tuple[float, list[float]]:
        group.add(MEMBERS - 1)
        together = group.settle()
        again = []
        for _ in range(REBALANCES):
            group.add(1)
            again.append(group.settle())
        return together, again

    (together, again), usage = visit.measure(join)
    return {
        "group.together": together * MS,
        "group.again": statistics.median(again) * MS,
        "group.cpu": usage.broker.total * MS / (REBALANCES + 1),
    }


SUITE = Suite(
    "groups",
    "A consumer group rebalances",
    Stage.ONE,
    (
        Workload(
            f"a group of {MEMBERS} rebalances",
            (
                Metric("group.together", f"{MEMBERS - 1} join a group of one", "ms", Better.LOWER),
                Metric("group.again", f"one more joins a group of {MEMBERS}", "ms", Better.LOWER),
                Metric("group.cpu", "broker CPU for each of these", "CPU ms", Better.LOWER),
            ),
            _rebalance,
        ),
    ),
    "Raw members that heartbeat every 50 ms, until all are in one generation; classic protocol, range assignor.",
)
