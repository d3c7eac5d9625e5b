"""Random rounds of faults over both kinds of brokers: planned by a seed, made one after another under load.

In each round the controller is moved to one side or left where it is, then one broker is stopped, killed or
frozen, or all are killed at once. A broker that ended may come back as the other kind, on what its
predecessor left: after a kill that is an unclean data directory of the other's making. The cluster always
keeps a broker of each kind.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rig.wait import last_for
from tests.mixed.cluster import KAFKA, LANDLINE, MixedCluster
from tests.support.peers import PeerKind

SHORTEST_FREEZE_S, LONGEST_FREEZE_S = 0.5, 9.0
"""From less than replica.lag.time.max.ms to more than the session's time-out."""


class Fault(enum.Enum):
    """What befalls a broker, or all."""

    STOP = "SIGTERM"
    KILL = "SIGKILL"
    FREEZE = "SIGSTOP"
    KILL_ALL = "SIGKILL of all"


# One fault in seven is of all brokers, three kill one.
FAULTS = (Fault.STOP, Fault.STOP, Fault.KILL, Fault.KILL, Fault.KILL, Fault.FREEZE, Fault.KILL_ALL)


@dataclass(frozen=True, slots=True)
class Round:
    """``controller`` None leaves it where it is; ``freeze_s`` is a freeze's length.

    The broker ``returns_as`` a kind after ``STOP`` and ``KILL``; otherwise all stay what they are.
    """

    controller: PeerKind | None
    broker_id: int
    fault: Fault
    returns_as: PeerKind
    freeze_s: float = 0.0

    def __str__(self) -> str:
        controller = "any" if self.controller is None else self.controller.value
        match self.fault:
            case Fault.FREEZE:
                detail = f"broker {self.broker_id} ({self.returns_as.value}) for {self.freeze_s:.1f} s"
            case Fault.KILL_ALL:
                detail = "three"
            case _:
                detail = f"broker {self.broker_id}, back as {self.returns_as.value}"
        return f"controller {controller}, {self.fault.value} {detail}"


def plan(seed: int, rounds: int, kinds: Mapping[int, PeerKind]) -> Iterator[Round]:
    """The rounds that the seed stands for, in a cluster that begins with ``kinds``."""
    random_ = random.Random(seed)
    now = dict(kinds)
    for _ in range(rounds):
        controller = random_.choice([None, KAFKA, LANDLINE])
        broker_id = random_.choice(sorted(now))
        fault = random_.choice(FAULTS)
        freeze_s = random_.uniform(SHORTEST_FREEZE_S, LONGEST_FREEZE_S)
        wanted = random_.choice([KAFKA, LANDLINE])
        others = {kind for other, kind in now.items() if other != broker_id}
        if fault in {Fault.FREEZE, Fault.KILL_ALL} or len(others | {wanted}) == 1:
            wanted = now[broker_id]
        now[broker_id] = wanted
        yield Round(controller, broker_id, fault, wanted, freeze_s if fault is Fault.FREEZE else 0.0)


def play(cluster: MixedCluster, one: Round, topics: Iterable[str]) -> None:
    """Makes one round; returns when all replicas of the topics are in sync again."""
    if one.controller is not None:
        cluster.force_controller(one.controller)
    match one.fault:
        case Fault.FREEZE:
            broker = cluster.brokers[one.broker_id]
            broker.freeze()
            try:
                last_for(one.freeze_s)
            finally:
                broker.thaw()
        case Fault.KILL_ALL:
            cluster.kill_and_start_all()
        case Fault.STOP | Fault.KILL:
            cluster.replace(one.broker_id, one.returns_as, kill=one.fault is Fault.KILL)
    cluster.await_in_sync(topics)
