"""The table of the suite: which fault hits which role, how long it lasts, and by when all must be well again.

Data, not code: ``faults`` implements the faults, ``walk`` chooses and runs them. A scenario's name is its
fault and its role. In all scenarios no acknowledged record may be lost, duplicated or reordered, and replicas
must agree to the byte. Scenarios that cannot guarantee this (unclean elections) are scripts with their own
topics, in ``scripts``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.faults import FAULTS, Role
from chaos.scripts import SCRIPTS

HEALS_WITHIN_S = 60.0
REBALANCE_CHANCE = 0.2

_ONE = (Role.LEADER, Role.FOLLOWER, Role.CONTROLLER, Role.COORDINATOR)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault of one role.

    ``hold_s`` is the range from which the fault's duration is chosen at random. ``heals_within_s`` counts
    from the healing until every ISR is complete and records are acknowledged; a longer time is a finding.
    Only every ``every`` n-th deal includes it: slow scenarios are dealt less often.
    """

    fault: str
    role: Role
    hold_s: tuple[float, float] = (0.0, 0.0)
    heals_within_s: float = HEALS_WITHIN_S
    every: int = 1

    @property
    def name(self) -> str:
        """Fault and role; the fault alone if it already names its victim."""
        if self.fault in SCRIPTS or self.role in {Role.ZOOKEEPER_LEADER, Role.ENSEMBLE}:
            return self.fault
        return f"{self.fault} of {self.role}"


@dataclass(frozen=True, slots=True)
class Step:
    """One round of a walk as the seed determines it. Only the cluster's state is not decided here."""

    number: int
    scenario: Scenario
    hold_s: float
    pick: int
    """Which partition's leader or follower, which follower, which peer: taken modulo the number
    of choices.
    """
    rebalance: bool

    def __str__(self) -> str:
        shown = f"round {self.number}: {self.scenario.name}, held {self.hold_s:.1f} s, pick {self.pick}"
        return f"{shown}, with a rebalance" if self.rebalance else shown


def _rows(
    fault: str, roles: Iterable[Role], hold_s: tuple[float, float] = (0.0, 0.0), every: int = 1
) -> list[Scenario]:
    return [Scenario(fault, role, hold_s, every=every) for role in roles]


SCENARIOS: Sequence[Scenario] = (
    *_rows("SIGKILL", (*_ONE, Role.TRANSACTION_COORDINATOR, Role.ALL)),
    *_rows("SIGTERM", (*_ONE, Role.ALL), (0.0, 2.0)),
    # From shorter to longer than a session and replica.lag.time.max.ms (4 s, deploy.yml).
    *_rows("SIGSTOP", _ONE, (1.0, 6.0)),
    *_rows("SIGSTOP", (Role.ALL,), (1.0, 5.0), every=2),
    *_rows("freeze", _ONE, (1.0, 6.0)),
    *_rows("power loss", _ONE, (0.0, 2.0)),
    *_rows("power loss", (Role.ALL,), (0.0, 1.0), every=2),
    *_rows("cut from a broker", (Role.LEADER, Role.CONTROLLER), (2.0, 6.0)),
    *_rows("cut from a broker, inwards", (Role.LEADER, Role.FOLLOWER), (2.0, 6.0)),
    *_rows("cut from a broker, outwards", (Role.LEADER, Role.CONTROLLER), (2.0, 6.0)),
    # A deposed leader continues to accept records that nobody replicates, and must discard them when it
    # is back.
    *_rows("cut from all brokers", (Role.LEADER, Role.CONTROLLER), (4.0, 8.0)),
    *_rows("isolated", _ONE, (1.0, 6.0)),
    *_rows("isolated, inwards", (Role.LEADER, Role.CONTROLLER), (1.0, 6.0)),
    *_rows("isolated, outwards", (Role.LEADER, Role.TRANSACTION_COORDINATOR), (1.0, 6.0)),
    *_rows("packet loss", (Role.LEADER, Role.FOLLOWER), (2.0, 4.0)),
    *_rows("low bandwidth", (Role.LEADER, Role.FOLLOWER), (2.0, 5.0)),
    *_rows("cut from ZooKeeper", _ONE, (1.0, 6.0)),
    *_rows("session expiry", _ONE),
    *_rows("session expiry", (Role.ALL,), every=2),
    *_rows("full disk", (Role.LEADER, Role.FOLLOWER, Role.CONTROLLER), (1.0, 3.0)),
    *_rows("read-only disk", (Role.LEADER, Role.FOLLOWER, Role.CONTROLLER), (0.5, 2.0)),
    *_rows("disk stands still", (Role.LEADER, Role.CONTROLLER), (1.0, 5.0), every=2),
    *_rows("ZooKeeper's answers held back", (Role.LEADER, Role.CONTROLLER), (1.0, 6.0), every=2),
    *_rows("ZooKeeper quorum gone", (Role.ENSEMBLE,), (1.0, 6.0), every=2),
    *_rows("ZooKeeper leader frozen", (Role.ZOOKEEPER_LEADER,), (1.0, 5.0)),
    *_rows("ZooKeeper ensemble gone", (Role.ENSEMBLE,), (1.0, 5.0), every=2),
    *_rows("unclean election", (Role.LEADER,), every=3),
    *_rows("no unclean election", (Role.LEADER,), every=3),
    *_rows("reassignment, controller killed", (Role.CONTROLLER,), every=3),
    *_rows("five clean bounces", (Role.LEADER, Role.CONTROLLER), every=3),
    *_rows("five hard bounces", (Role.LEADER, Role.CONTROLLER), every=3),
    *_rows("last of an ISR loses power", (Role.LEADER,), every=2),
)
"""The scenarios that a walk is dealt from."""

LONG_SCENARIOS: Sequence[Scenario] = (
    # A minute costs no more than a second. test_zookeeper_minute_without_quorum checks that brokers need 10 s
    # of it; here the servers' start counts too, and clients that have backed off.
    Scenario("ZooKeeper ensemble gone", Role.ENSEMBLE, (60.0, 60.0)),
    Scenario("ZooKeeper quorum gone", Role.ENSEMBLE, (60.0, 60.0)),
    Scenario("ZooKeeper leader frozen", Role.ZOOKEEPER_LEADER, (30.0, 30.0)),
    Scenario("ZooKeeper's answers held back", Role.CONTROLLER, (30.0, 30.0)),
    Scenario("disk stands still", Role.LEADER, (30.0, 30.0)),
    Scenario("SIGSTOP", Role.LEADER, (25.0, 25.0)),
    Scenario("isolated", Role.LEADER, (30.0, 30.0)),
    Scenario("low bandwidth", Role.FOLLOWER, (30.0, 30.0), heals_within_s=90.0),
)
"""Faults as long as an operator would see them; included with ``--long``."""


def steps(
    seed: int, rounds: int, *, data_disks: bool, long: bool = False, only: Sequence[str] = ()
) -> list[Step]:
    """The walk of a seed: the whole table is dealt in random order, repeatedly, until there are
    enough rounds.

    ``only`` keeps the scenarios whose name contains one of the texts; raises ``ValueError`` when there
    is none.
    """
    chance = random.Random(seed)
    table = [*SCENARIOS, *LONG_SCENARIOS] if long else SCENARIOS
    possible = [each for each in table if data_disks or not _needs_data_disk(each)]
    if only:
        possible = [each for each in possible if any(text in each.name for text in only)]
    if not possible:
        raise ValueError(f"no scenario that can be had here has {' or '.join(only)} in its name")
    walk: list[Step] = []
    deal = 0
    while len(walk) < rounds:
        hand = [each for place, each in enumerate(possible) if (deal + place) % each.every == 0]
        chance.shuffle(hand)
        deal += 1
        walk += [_step(len(walk) + place, each, chance) for place, each in enumerate(hand, 1)]
    return walk[:rounds]


def _needs_data_disk(scenario: Scenario) -> bool:
    fault = FAULTS.get(scenario.fault)
    return fault is not None and fault.needs_data_disk


def _step(number: int, scenario: Scenario, chance: random.Random) -> Step:
    hold_s = round(chance.uniform(*scenario.hold_s), 2)
    return Step(number, scenario, hold_s, chance.randrange(1 << 16), chance.random() < REBALANCE_CHANCE)
