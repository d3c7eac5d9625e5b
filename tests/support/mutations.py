"""Rules of replication that are broken on purpose, one at a time, to show that the tests would notice.

Each mutation replaces functions of the running broker; the product contains none of it. ``mutated`` breaks a
rule temporarily in this process (the model test), ``tests.support.mutated_broker`` for the life of a broker
(the chaos test).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from broker.cluster import isr as isr_rule
from broker.cluster.isr import IsrState
from broker.cluster.partition import Partition
from broker.cluster.replica import FollowerState
from broker.cluster.results import Awaited
from broker.controller.rules import leader_selector
from broker.log.log_offsets import LogOffsets
from broker.protocol.errors import Errors, KafkaError
from broker.replication.leadership import Leadership
from tests.support.compiled import refuse_compiled


@dataclass(frozen=True, slots=True)
class Patch:
    """A replacement of ``owner.name`` by the result of ``broken`` for the original."""

    owner: Any
    name: str
    broken: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken rule. ``rule`` is what normally holds (docs/replication.md); ``patches`` break it."""

    name: str
    rule: str
    patches: tuple[Patch, ...]

    def require_reach(self) -> None:
        """Skips the test if the broker's compiled code would not see what is put in its place."""
        for patch in self.patches:
            refuse_compiled(patch.owner)

    def apply(self) -> None:
        """Breaks the rule permanently."""
        for patch in self.patches:
            setattr(patch.owner, patch.name, patch.broken(_raw(patch)))


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Breaks the rule within the block."""
    mutation.require_reach()
    originals = [(patch, _raw(patch)) for patch in mutation.patches]
    mutation.apply()
    try:
        yield
    finally:
        for patch, original in originals:
            setattr(patch.owner, patch.name, original)


def _raw(patch: Patch) -> Any:
    """The raw attribute of its owner: a property stays a property."""
    return vars(patch.owner)[patch.name]


def _acknowledge_at_once(_original: Any) -> Any:
    def has_reached(self: Partition, awaited: Awaited) -> Errors | None:
        if not self.is_leader or awaited.term != self._term:
            return Errors.NOT_LEADER_OR_FOLLOWER
        return Errors.NONE

    return has_reached


def _mark_by_the_leader_alone(_original: Any) -> Any:
    def next_high_watermark(current: int, leader_end_offset: int, *_args: Any, **_rules: Any) -> int:
        return max(current, leader_end_offset)

    return next_high_watermark


def _no_divergence(_original: Any) -> Any:
    def diverging_epoch(_self: Partition, _fetch_offset: int, _last_fetched_epoch: int) -> None:
        return None

    return diverging_epoch


def _any_controller_epoch(_original: Any) -> Any:
    def check_controller_epoch(self: Leadership, controller_epoch: int) -> None:
        self.controller_epoch = max(self.controller_epoch, controller_epoch)

    return check_controller_epoch


def _no_controller_expected(_original: Any) -> Any:
    def expect_controller(_self: Leadership, _controller_epoch: int) -> None:
        return

    return expect_controller


def _join_at_the_mark(_original: Any) -> Any:
    def may_join(follower: FollowerState, high_watermark: int, _leader_epoch_start_offset: int) -> bool:
        return follower.log_end_offset >= high_watermark

    return may_join


def _proposed_counts(_original: Any) -> Any:
    return property(lambda self: self.committed if self.proposed is None else self.proposed)


def _elect_anybody(original: Any) -> Any:
    def elect_offline(*args: Any, **rules: Any) -> Any:
        return original(*args, **{**rules, "unclean_allowed": True})

    return elect_offline


def _any_leader_epoch(_original: Any) -> Any:
    def require_leader(
        self: Partition, _current_leader_epoch: int = -1, *, or_follower: bool = False
    ) -> None:
        if not self.is_leader and not or_follower:
            raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)

    return require_leader


def _mark_as_told(original: Any) -> Any:
    def mark(self: LogOffsets, offset: int) -> None:
        told = offset != self.high_watermark  # a truncation passes the present one, to have it clipped
        if told:
            self.high_watermark = max(offset, self.start)
        else:
            original(self, offset)

    return mark


_ALL = (
    Mutation(
        "acknowledge-before-isr",
        "acks=all is answered when the high watermark has passed the records",
        (Patch(Partition, "has_reached", _acknowledge_at_once),),
    ),
    Mutation(
        "high-watermark-by-leader-alone",
        "the high watermark waits for every member of the maximal ISR",
        (Patch(isr_rule, "next_high_watermark", _mark_by_the_leader_alone),),
    ),
    Mutation(
        "skip-truncation",
        "a follower whose log parted from its leader's cuts its own before it fetches on",
        (Patch(Partition, "diverging_epoch", _no_divergence),),
    ),
    Mutation(
        "ignore-stale-controller-epoch",
        "a request of a controller that has been replaced is refused whole",
        (Patch(Leadership, "_check_controller_epoch", _any_controller_epoch),),
    ),
    Mutation(
        "forget-controller-epoch",
        "a broker that starts takes no orders of a controller that was replaced before",
        (Patch(Leadership, "expect_controller", _no_controller_expected),),
    ),
    Mutation(
        "join-isr-before-epoch-start",
        "a follower joins the ISR only when it has reached the start of the leader's epoch",
        (Patch(isr_rule, "may_join", _join_at_the_mark),),
    ),
    Mutation(
        "shrink-counts-at-once",
        "a member that is about to leave the ISR counts until the controller has agreed",
        (Patch(IsrState, "maximal", _proposed_counts),),
    ),
    Mutation(
        "elect-out-of-isr",
        "a replica out of the ISR is elected only where unclean.leader.election.enable says so",
        (Patch(leader_selector, "elect_offline", _elect_anybody),),
    ),
    Mutation(
        "serve-fenced-epochs",
        "a fetch of another leader epoch is refused, and acknowledges nothing",
        (Patch(Partition, "require_leader", _any_leader_epoch),),
    ),
    Mutation(
        "high-watermark-past-the-log",
        "the high watermark begins at the checkpoint's, but no further than the log's end",
        (Patch(LogOffsets, "mark", _mark_as_told),),
    ),
)
MUTATIONS: Mapping[str, Mutation] = {mutation.name: mutation for mutation in _ALL}
