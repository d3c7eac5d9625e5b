"""What is compared: systems, models, scenarios, and in which order the runs come. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum


class System(StrEnum):
    """What is started."""

    LANDLINE = "landline"
    SPARK = "spark"


class Model(StrEnum):
    """Who starts it."""

    INDEPENDENT = "independent"
    PUSH_SEQUENTIAL = "push-sequential"
    PUSH_PARALLEL = "push-parallel"

    @property
    def is_push(self) -> bool:
        """Whether a master sends commands."""
        return self is not Model.INDEPENDENT


class Scenario(StrEnum):
    """What happens meanwhile."""

    COLD_START = "cold-start"
    SLOW_HOST = "slow-host"
    DEAD_HOST = "dead-host"
    CRASH = "crash"
    REBOOT = "reboot"
    MASTER_DEAD_BEFORE = "master-dead-before"
    MASTER_DEAD_DURING = "master-dead-during"
    MASTER_DEAD_AFTER = "master-dead-after"
    SSH_REFUSED = "ssh-refused"
    HOST_ADDED = "host-added"


class Fault(Enum):
    """What is done to a host. One without power gets it back after ``OUTAGE_S``."""

    SLOW = "slow"
    NO_POWER = "no power"
    KILLED = "its member is killed"
    REBOOTED = "rebooted"
    NO_SSH = "ssh refused"
    HELD_BACK = "not started with the others"


class When(Enum):
    """Before the run begins, ``DURING_S`` after that, or when all members serve."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Rule:
    """A scenario's fault. It hits the master's host, or else the last one."""

    fault: Fault
    when: When
    on_master: bool = False

    def victim(self, hosts: Sequence[str]) -> str:
        """The host that is hit."""
        return hosts[0] if self.on_master else hosts[-1]


RULES: dict[Scenario, Rule | None] = {
    Scenario.COLD_START: None,
    Scenario.SLOW_HOST: Rule(Fault.SLOW, When.BEFORE),
    Scenario.DEAD_HOST: Rule(Fault.NO_POWER, When.BEFORE),
    Scenario.CRASH: Rule(Fault.KILLED, When.AFTER),
    Scenario.REBOOT: Rule(Fault.REBOOTED, When.AFTER),
    Scenario.MASTER_DEAD_BEFORE: Rule(Fault.NO_POWER, When.BEFORE, on_master=True),
    Scenario.MASTER_DEAD_DURING: Rule(Fault.NO_POWER, When.DURING, on_master=True),
    Scenario.MASTER_DEAD_AFTER: Rule(Fault.NO_POWER, When.AFTER, on_master=True),
    Scenario.SSH_REFUSED: Rule(Fault.NO_SSH, When.BEFORE),
    Scenario.HOST_ADDED: Rule(Fault.HELD_BACK, When.AFTER),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One run; ``number`` counts a comparison's from 1."""

    number: int
    scenario: Scenario
    system: System
    model: Model
    hosts: int
    round: int

    def __str__(self) -> str:
        return f"{self.scenario} {self.system} {self.model} {self.hosts} hosts, round {self.round}"


def host_counts(hosts: int) -> list[int]:
    """With how many hosts the cold start is measured, so that growth can be seen: one, half of them, all."""
    return sorted({1, (hosts + 1) // 2, hosts})


def pairs_of(scenario: Scenario, pairs: Sequence[tuple[System, Model]]) -> list[tuple[System, Model]]:
    """Those that a scenario is measured with. With a fault a push in turn tells nothing that the push in parallel and
    the cold starts do not: it is left out where that is measured.
    """
    if scenario is Scenario.COLD_START or all(model is not Model.PUSH_PARALLEL for _, model in pairs):
        return list(pairs)
    return [pair for pair in pairs if pair[1] is not Model.PUSH_SEQUENTIAL]


def plan(
    hosts: int,
    rounds: int,
    scenarios: Iterable[Scenario] = tuple(Scenario),
    systems: Iterable[System] = tuple(System),
    models: Iterable[Model] = tuple(Model),
    *,
    cold_start_hosts: Sequence[int] = (),
) -> list[Planned]:
    """All runs in their order: round by round, in it scenario by scenario, in that each system and model in turn.

    Which system and model is first moves on by one with every round and scenario: none profits from its place.
    """
    pairs = [(system, model) for model in models for system in systems]
    cases = [
        (scenario, count)
        for scenario in scenarios
        for count in (cold_start_hosts or [hosts] if scenario is Scenario.COLD_START else [hosts])
    ]
    found: list[Planned] = []
    for round_number in range(1, rounds + 1):
        for place, (scenario, count) in enumerate(cases):
            taken = pairs_of(scenario, pairs)
            first = (round_number - 1 + place) % len(taken)
            for system, model in taken[first:] + taken[:first]:
                found.append(Planned(len(found) + 1, scenario, system, model, count, round_number))
    return found
