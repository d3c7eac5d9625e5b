"""A partition's replicas while they may be moving (KIP-455), and which moves are allowed. Pure.

``replicas`` is everything that exists, the target first; ``adding`` and ``removing`` are what the move brings and
takes away. So the target is ``replicas`` without ``removing``, and where it all began is ``replicas`` without
``adding``: any controller can tell both from the topic's znode alone. Kafka's ReplicaAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper.znodes import LeaderAndIsr

Ids = tuple[int, ...]
_TOLD: Final = 20
# As many as a replication factor, two bytes in the protocol, can say.
_MOST_REPLICAS: Final = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Invariant: ``adding`` and ``removing`` are part of ``replicas``.

    What is in both was added by a move that another has overridden: it is :attr:`unneeded` and goes at once, but not
    before the znode says so, lest a controller that dies in between leave it behind.
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
        """The replicas after it, the preferred leader first."""
        return _without(self.replicas, self.removing)

    @property
    def unneeded(self) -> Ids:
        """Neither of the origin nor of the target."""
        removing = set(self.removing)
        return tuple(replica for replica in self.adding if replica in removing)

    def reassign_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """The move to ``target``, in place of the one under way if there is one: it begins at the same origin."""
        replicas = tuple(dict.fromkeys((*target, *self.origin, *self.replicas)))
        return ReplicaAssignment(replicas, _without(replicas, self.origin), _without(replicas, target))

    def cancelled(self) -> ReplicaAssignment:
        """The way back to the origin."""
        return self.reassign_to(self.origin)

    def without_unneeded(self) -> ReplicaAssignment:
        gone = self.unneeded
        return ReplicaAssignment(
            _without(self.replicas, gone), _without(self.adding, gone), _without(self.removing, gone)
        )

    def is_complete(self, state: LeaderAndIsr | None) -> bool:
        """Whether the removed replicas may go: nothing moves, or every target replica is in sync."""
        return not self.is_being_reassigned or (state is not None and set(self.target) <= set(state.isr))


def check_target(target: Sequence[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT for what cannot be a partition's replicas."""
    if not target:
        raise _invalid("the list of replicas is empty: name at least one broker, or null to cancel")
    if len(target) > _MOST_REPLICAS:
        raise _invalid(f"{len(target)} replicas are more than the {_MOST_REPLICAS} that a partition may have")
    if len(set(target)) != len(target):
        raise _invalid(f"the list of replicas {few(target)} names a broker more than once")
    if any(broker_id < 0 for broker_id in target):
        raise _invalid(f"the list of replicas {few(target)} has a negative broker id")


def check_alive(target: Sequence[int], before: ReplicaAssignment, live: Collection[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT where a dead broker would be added: what passes is no longer than
    the cluster has brokers.
    """
    known = {*before.origin, *live}
    # One by one, so that other threads have their turns: a stranger may name a hundred thousand.
    dead = [broker_id for broker_id in target if broker_id not in known]
    if dead:
        raise _invalid(f"brokers {few(dead)} are not alive (or stop just now): live are {few(sorted(live))}")


def check_move(move: ReplicaAssignment, state: LeaderAndIsr | None, online: Collection[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT where the unneeded replicas may not be dropped."""
    if not may_drop_unneeded(move, state, online):
        raise _invalid(
            f"this would drop {list(move.unneeded)}, which alone are alive and in sync: wait until another replica is "
            f"in sync, or keep them in the list"
        )


def may_drop_unneeded(move: ReplicaAssignment, state: LeaderAndIsr | None, online: Collection[int]) -> bool:
    """Whether somebody who stays has everything that is committed, and could lead as well as those dropped could.

    ``online`` has the partition's replicas that are alive. (Kafka does not ask.)
    """
    unneeded = set(move.unneeded)
    if state is None or not unneeded:
        return True
    kept = [member for member in state.isr if member not in unneeded]
    if any(member in online for member in kept):
        return True
    return bool(kept) and not any(member in online for member in state.isr)


def few(ids: Sequence[int]) -> str:
    """Ids for a person to read; a stranger may name a hundred thousand."""
    told = ", ".join(map(str, ids[:_TOLD]))
    return f"[{told}]" if len(ids) <= _TOLD else f"[{told}, ... {len(ids)} in all]"


def _invalid(message: str) -> KafkaError:
    return KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, message)


def _without(replicas: Sequence[int], gone: Iterable[int]) -> Ids:
    away = set(gone)
    return tuple(replica for replica in replicas if replica not in away)
