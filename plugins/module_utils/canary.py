# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the first broker of a roll is worse than the others: from looks at all of them while it is watched. Pure.

What a request takes is compared by two measures of /metrics: the mean of what the broker itself does for it
(LocalTime), and the 99th percentile of all it takes (TotalTime), by the histogram's bounds, which double.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

# A request is compared if both sides had so many of it. The slower a broker is, the fewer it serves: with fewer, it
# has to be slow between so many looks, and between all of them.
ENOUGH = 20
STEADY = 3
# Slower: so many times as slow as the slowest other one, and by so much. Or so slow that nobody needs to be asked.
TIMES_SLOWER = 3.0
SLOWER_MS = 50.0
FAR_TOO_SLOW_MS = 1000.0
# A percentile says something of so many requests. Those that wait for what comes say nothing of a broker by it.
ENOUGH_FOR_P99 = 100
THAT_WAIT = {"FETCH", "JOIN_GROUP", "SYNC_GROUP"}
# Failing: such a part of the requests, so many of them, and so many times as many as of the others.
FAILED_PART = 0.01
FAILED_LEAST = 5
TIMES_FAILED = 3.0
_ROW = re.compile(r'^kafka_network_requestmetrics_(\w+?)_total\{request="(\w+)"\} (\S+)$', re.MULTILINE)
_BUCKET = re.compile(
    r'^kafka_network_requestmetrics_totaltimems_bucket\{le="(\S+?)",request="(\w+)"\} (\S+)$', re.MULTILINE
)
_SERVES = {"RunningAsBroker", "RunningAsController"}

# What is known of a broker that serves, and does not say more without a token.
SERVES: Mapping[str, Any] = {"state": "RunningAsBroker"}

Partition = tuple[str, int]


@dataclass(frozen=True)
class Process:
    """What tells a unit's processes apart, and how often systemd has started one by itself since a person last did."""

    name: str
    restarts: int = 0


NO_PROCESS = Process("")


@dataclass(frozen=True)
class Look:
    """One look at a broker. `counts` are of /metrics, by request and kind: requests, errors, localtimems. `times` are
    by request how many took at most so many milliseconds.
    """

    serves: bool
    leading: Sequence[Mapping[str, Any]] = ()
    counts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    process: Process = NO_PROCESS
    times: Mapping[str, Mapping[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """What a broker did between two looks: requests, failed ones, and mean milliseconds by request."""

    requests: Mapping[str, float]
    failed: float
    mean_ms: Mapping[str, float]

    @property
    def failed_part(self) -> float:
        return self.failed / max(sum(self.requests.values()), 1.0)


def look_of(status: Mapping[str, Any] | None, metrics: str, process: Process = NO_PROCESS) -> Look:
    """Returns a look, from the contents of /status and /metrics."""
    told = status or {}
    counts: dict[str, dict[str, float]] = {}
    for kind, request, value in _ROW.findall(metrics):
        counts.setdefault(request, {})[kind] = float(value)
    times: dict[str, dict[float, float]] = {}
    for bound, request, value in _BUCKET.findall(metrics):
        times.setdefault(request, {})[float(bound)] = float(value)
    return Look(told.get("state") in _SERVES, told.get("leading") or [], counts, process, times)


def load_between(first: Look, last: Look) -> Load:
    """Returns what a broker did between two looks. Of a process that began meanwhile, what it did since then."""
    requests, mean_ms, failed = {}, {}, 0.0
    for request, counts in last.counts.items():
        before = first.counts.get(request, {})
        done = {kind: value - before.get(kind, 0.0) for kind, value in counts.items()}
        if done.get("requests", 0.0) < 0:
            done = dict(counts)
        failed += max(done.get("errors", 0.0), 0.0)
        if done.get("requests", 0.0) > 0:
            requests[request] = done["requests"]
            mean_ms[request] = max(done.get("localtimems", 0.0), 0.0) / done["requests"]
    return Load(requests, failed, mean_ms)


def why_worse(broker_id: int, own: Sequence[Look], others: Sequence[Sequence[Look]]) -> list[str]:
    """Returns in words why a broker is worse than the others; empty if it is not. Takes all looks at it and at each of
    the others, oldest first. Others that gave no answer have no looks. Where somebody restarted it, as another deploy
    does, only the looks since then count.
    """
    answered = [looks for looks in others if len(looks) > 1]
    ends = sum(after.process.restarts > before.process.restarts for before, after in pairwise(own))
    if ends:
        return [f"its process ended by itself while it was watched, {ends} times"]
    own = [look for look in own if look.process == own[-1].process]
    if len(own) < 2:
        return []
    if not any(look.serves for look in own[-2:]):  # one answer may be late
        return ["it does not serve clients any more"]
    found = [*_partitions(broker_id, own, answered)]
    load = load_between(own[0], own[-1])
    beside = [load_between(looks[0], looks[-1]) for looks in answered]
    slow = dict(_late(own, answered)) | dict(_slow(own, load, beside))
    return [*found, *_errors(load, beside), *(slow[request] for request in sorted(slow))]


def judged_by_time(own: Sequence[Look]) -> list[str]:
    """Returns the requests that a broker had enough of to say whether they were slow."""
    looks = [look for look in own if look.process == own[-1].process]
    return sorted(
        name for name, count in load_between(looks[0], looks[-1]).requests.items() if count >= ENOUGH
    )


def _partitions(broker_id: int, own: Sequence[Look], others: Sequence[Sequence[Look]]) -> Iterable[str]:
    """Partitions whose replication suffers by this broker in the last two looks, and did not in the first one."""

    def behind(at: int) -> set[Partition]:
        return {part for looks in others for part in _missing(looks[at], broker_id)}

    def short(at: int) -> set[Partition]:
        # Followers that other leaders miss too have a fault of their own.
        lost = {replica for looks in others for row in looks[at].leading for replica in _lost(row)}
        return {_partition(row) for row in own[at].leading if set(_lost(row)) - lost}

    out = (behind(-1) & behind(-2)) - behind(0)
    if out:
        yield f"it has left the ISR of {_named(out)}"
    led = (short(-1) & short(-2)) - short(0)
    if led:
        yield f"{_named(led)}, which it leads, lost followers that other leaders have"


def _errors(load: Load, others: Sequence[Load]) -> Iterable[str]:
    most = max((other.failed_part for other in others), default=0.0)
    if load.failed >= FAILED_LEAST and load.failed_part > max(FAILED_PART, TIMES_FAILED * most):
        yield (
            f"{load.failed:.0f} of its {sum(load.requests.values()):.0f} requests failed by unexpected errors "
            f"({load.failed_part:.1%}; of the others' at most {most:.1%})"
        )


def _slow(own: Sequence[Look], load: Load, others: Sequence[Load]) -> Iterable[tuple[str, str]]:
    """Requests that are slow on average, and in words how."""
    for request, took_ms in sorted(load.mean_ms.items()):
        sure_ms = took_ms if load.requests[request] >= ENOUGH else _steadily_ms(own, request)
        beside = [each.mean_ms[request] for each in others if each.requests.get(request, 0) >= ENOUGH]
        if _is_slow(sure_ms, beside):
            yield request, f"its {request} requests take {took_ms:.1f} ms on average ({_beside(beside)})"


def _late(own: Sequence[Look], others: Sequence[Sequence[Look]]) -> Iterable[tuple[str, str]]:
    """Requests of which one of a hundred is slow, in each part of the watch, and in words how."""
    ends = [round(part * (len(own) - 1) / STEADY) for part in range(STEADY + 1)]
    for request in own[-1].times.keys() - THAT_WAIT:
        parts = [p99_ms(own[first], own[last], request) for first, last in pairwise(ends)]
        sure_ms = min(part or 0.0 for part in parts)
        asked = (p99_ms(looks[0], looks[-1], request) for looks in others)
        beside = [took_ms for took_ms in asked if took_ms is not None]
        if _is_slow(sure_ms, beside):
            yield request, f"one of 100 of its {request} requests takes {sure_ms:.1f} ms ({_beside(beside)})"


def p99_ms(first: Look, last: Look, request: str) -> float | None:
    """Returns what 99 of 100 requests between two looks took at most; None if there were too few to say."""
    before = first.times.get(request, {})
    within = {bound: count - before.get(bound, 0.0) for bound, count in last.times.get(request, {}).items()}
    count = max(within.values(), default=0.0)
    if count < ENOUGH_FOR_P99 or min(within.values()) < 0:  # another process counts from 0
        return None
    bound = min(bound for bound, up_to in within.items() if up_to >= 0.99 * count)
    return bound if bound != float("inf") else 2 * max(within.keys() - {bound})


def _is_slow(sure_ms: float, beside: Sequence[float]) -> bool:
    slowest = max(beside, default=0.0)
    slower = bool(beside) and sure_ms > TIMES_SLOWER * slowest and sure_ms > slowest + SLOWER_MS
    return slower or sure_ms > max(FAR_TOO_SLOW_MS, TIMES_SLOWER * slowest)


def _beside(took_ms: Sequence[float]) -> str:
    return f"the others' at most {max(took_ms):.1f} ms" if took_ms else "no other has enough of them"


def _steadily_ms(own: Sequence[Look], request: str) -> float:
    """Returns what a request took at least, on average between two looks."""
    each = [load_between(before, after).mean_ms.get(request) for before, after in pairwise(own)]
    means = [took_ms for took_ms in each if took_ms is not None]
    return min(means) if len(means) >= STEADY else 0.0


def _missing(look: Look, broker_id: int) -> set[Partition]:
    return {_partition(row) for row in look.leading if broker_id in _lost(row)}


def _lost(row: Mapping[str, Any]) -> list[int]:
    return [replica for replica in row["replicas"] if replica not in row["isr"]]


def _partition(row: Mapping[str, Any]) -> Partition:
    return str(row["topic"]), int(row["partition"])


def _named(partitions: Iterable[Partition]) -> str:
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
