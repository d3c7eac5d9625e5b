"""The kinds of anomalies, after the list in jepsen.tests.kafka, and their text.

LOST                  acknowledged, but not in the final log; if that was not read: never read by anyone
PHANTOM               read, but never sent, or not as it was sent
DUPLICATE             one id at two places, although its producer is idempotent
REORDERED             within a partition, an idempotent producer's records are not in sending order, or any
                      record precedes one that was acknowledged before it was sent
INCONSISTENT_OFFSET   one offset with two values, or an acknowledged record is only elsewhere
NONMONOTONIC_ACK      an idempotent producer's acknowledged offsets in a partition are not in sending order
NONMONOTONIC_POLL     a consumer went back within one assignment of the partition
SKIPPED               a consumer, or its whole group, skipped an offset that holds a record
UNREAD                a group, or a consumer without a group, never reached the end of the final log
READ_ABOVE_HW         a record that was read vanished or changed, or was not below a later high watermark
ACKED_ABOVE_HW        acknowledged at or above a high watermark that was reported later
NONMONOTONIC_END      the high watermark went back
COMMIT_LOST           a partition was read from below an acknowledged commit, or the group's final offset is
NONMONOTONIC_COMMIT   a commit below an earlier one was accepted, without a rebalance to it
ABORTED_READ          a record is visible with read_committed, but its producer never asked to commit it, or
                      knows that it was aborted
UNDECIDED_READ        a record was read with read_committed before its producer asked to commit it
TORN                  a part of a transaction is visible, another is not (of a committed one: LOST)
ZOMBIE                a transaction had an effect although its producer was fenced before it asked to commit
NOT_COPIED            no committed transaction of the copier has a copy of an input record
COPIED_TWICE          several visible records are copies of one input record
ABORTED_OFFSET        the copier's group has an offset that no committed transaction contains
DIVERGED              two replicas' files differ below the high watermark, or from the log as it was read
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


class AnomalyKind(enum.Enum):
    """What is wrong; the module docstring defines each kind."""

    LOST = "lost"
    PHANTOM = "phantom"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    INCONSISTENT_OFFSET = "inconsistent-offset"
    NONMONOTONIC_ACK = "nonmonotonic-ack"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    SKIPPED = "skipped"
    UNREAD = "unread"
    READ_ABOVE_HW = "read-above-hw"
    ACKED_ABOVE_HW = "acked-above-hw"
    NONMONOTONIC_END = "nonmonotonic-end"
    COMMIT_LOST = "commit-lost"
    NONMONOTONIC_COMMIT = "nonmonotonic-commit"
    ABORTED_READ = "aborted-read"
    UNDECIDED_READ = "undecided-read"
    TORN = "torn"
    ZOMBIE = "zombie"
    NOT_COPIED = "not-copied"
    COPIED_TWICE = "copied-twice"
    ABORTED_OFFSET = "aborted-offset"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding; ``detail`` describes it with all its numbers and times (``@``: monotonic seconds).

    ``record_id`` is empty if it is about an offset only. ``at_s`` is when it became visible.
    """

    kind: AnomalyKind
    record_id: str
    partition: int
    detail: str
    topic: str = ""
    at_s: float = 0.0

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}" if self.topic else f"partition {self.partition}"
        what = f"{self.record_id} in {place}" if self.record_id else place
        return f"{self.kind.value}: {what}: {self.detail}"


def counts(anomalies: Iterable[Anomaly]) -> dict[AnomalyKind, int]:
    """The number of findings of each kind that occurs, in the order of the kinds."""
    found = Counter(anomaly.kind for anomaly in anomalies)
    return {kind: found[kind] for kind in AnomalyKind if found[kind]}


def summary(anomalies: Iterable[Anomaly], limit: int = 20) -> str:
    """A text for an assertion: counts by kind, then the first ``limit`` findings."""
    found = list(anomalies)
    by_kind = ", ".join(f"{count} {kind.value}" for kind, count in counts(found).items())
    return "\n".join([by_kind or "no anomaly", *(str(anomaly) for anomaly in found[:limit])])


def at(seconds: float) -> str:
    """A time, as written in findings."""
    return f"@{seconds:.3f}"
