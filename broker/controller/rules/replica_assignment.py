"""A partition's replicas during a reassignment (KIP-455), and which moves are allowed. Pure.

``replicas`` has all existing replicas, the target first. ``adding`` and ``removing`` are those that
the move adds and removes. So the target is ``replicas`` without ``removing``, and the original
replicas are ``replicas`` without ``adding``. Any controller can derive both from the topic's znode
alone. Kafka's ReplicaAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper.znodes import LeaderAndIsr

Ids = tuple[int, ...]
_TOLD: Final = 20
# The maximum replication factor, which has two bytes in the protocol.
_MOST_REPLICAS: Final = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """A partition's replicas, also during a reassignment; Kafka's ReplicaAssignment. Invariant: ``adding``
    and ``removing`` are part of ``replicas``.

    A replica in both was added by a move that was overridden. It is :attr:`unneeded` and is removed at once,
    but only after the znode says so: a controller that dies in between must not leave it behind.
    """

    replicas: Ids
    adding: Ids = ()
    removing: Ids = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> Ids:
        """The replicas before the move."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> Ids:
        """The replicas after the move, the preferred leader first."""
        return _without(self.replicas, self.removing)

    @property
    def unneeded(self) -> Ids:
        """Replicas that belong neither to the origin nor to the target."""
        removing = set(self.removing)
        return tuple(replica for replica in self.adding if replica in removing)

    def reassign_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """A move to ``target``. It replaces a move in progress and keeps that move's origin."""
        replicas = tuple(dict.fromkeys((*target, *self.origin, *self.replicas)))
        return ReplicaAssignment(replicas, _without(replicas, self.origin), _without(replicas, target))

    def cancelled(self) -> ReplicaAssignment:
        """A move back to the origin."""
        return self.reassign_to(self.origin)

    def without_unneeded(self) -> ReplicaAssignment:
        gone = self.unneeded
        return ReplicaAssignment(
            _without(self.replicas, gone), _without(self.adding, gone), _without(self.removing, gone)
        )

    def is_complete(self, state: LeaderAndIsr | None) -> bool:
        """Whether the removed replicas may be deleted: there is no move, or every target replica is
        in sync.
        """
        return not self.is_being_reassigned or (state is not None and set(self.target) <= set(state.isr))


def check_target(target: Sequence[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT if this cannot be a partition's replica list."""
    if not target:
        raise _invalid("the list of replicas is empty: name at least one broker, or null to cancel")
    if len(target) > _MOST_REPLICAS:
        raise _invalid(f"{len(target)} replicas are more than the {_MOST_REPLICAS} that a partition may have")
    if len(set(target)) != len(target):
        raise _invalid(f"the list of replicas {few(target)} names a broker more than once")
    if any(broker_id < 0 for broker_id in target):
        raise _invalid(f"the list of replicas {few(target)} has a negative broker id")


def check_alive(target: Sequence[int], before: ReplicaAssignment, live: Collection[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT if a dead broker would be added. So an accepted target is
    no longer than the number of brokers.
    """
    known = {*before.origin, *live}
    # A Python loop, so that other threads get to run: a client may name a hundred thousand brokers.
    dead = [broker_id for broker_id in target if broker_id not in known]
    if dead:
        raise _invalid(f"brokers {few(dead)} are not alive (or stop just now): live are {few(sorted(live))}")


def check_move(move: ReplicaAssignment, state: LeaderAndIsr | None, online: Collection[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT if the unneeded replicas may not be dropped."""
    if not may_drop_unneeded(move, state, online):
        raise _invalid(
            f"this would drop {list(move.unneeded)}, which alone are alive and in sync: wait until another replica is "
            f"in sync, or keep them in the list"
        )


def may_drop_unneeded(move: ReplicaAssignment, state: LeaderAndIsr | None, online: Collection[int]) -> bool:
    """Whether a remaining replica has all committed records, and could lead as well as the dropped
    ones could.

    ``online`` has the partition's live replicas. (Kafka has no such check.)
    """
    unneeded = set(move.unneeded)
    if state is None or not unneeded:
        return True
    kept = [member for member in state.isr if member not in unneeded]
    if any(member in online for member in kept):
        return True
    return bool(kept) and not any(member in online for member in state.isr)


def few(ids: Sequence[int]) -> str:
    """The ids as text, shortened: a client may name a hundred thousand."""
    told = ", ".join(map(str, ids[:_TOLD]))
    return f"[{told}]" if len(ids) <= _TOLD else f"[{told}, ... {len(ids)} in all]"


def _invalid(message: str) -> KafkaError:
    return KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, message)


def _without(replicas: Sequence[int], gone: Iterable[int]) -> Ids:
    away = set(gone)
    return tuple(replica for replica in replicas if replica not in away)
