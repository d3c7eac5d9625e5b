"""The systems, models and scenarios to compare, and the order of the runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum


class System(StrEnum):
    """The system that is started."""

    LANDLINE = "landline"
    SPARK = "spark"


class Model(StrEnum):
    """The way in which it is started."""

    INDEPENDENT = "independent"
    PUSH_SEQUENTIAL = "push-sequential"
    PUSH_PARALLEL = "push-parallel"

    @property
    def is_push(self) -> bool:
        """Whether a master sends commands."""
        return self is not Model.INDEPENDENT


class Scenario(StrEnum):
    """The event during the run."""

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
    """The fault on a host. A host without power gets it back after ``OUTAGE_S``."""

    SLOW = "slow"
    NO_POWER = "no power"
    KILLED = "its member is killed"
    REBOOTED = "rebooted"
    NO_SSH = "ssh refused"
    HELD_BACK = "not started with the others"


class When(Enum):
    """The time of a fault: before the run begins, ``DURING_S`` after that, or when all members serve."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Rule:
    """A scenario's fault. It hits the master's host, or else the last host."""

    fault: Fault
    when: When
    on_master: bool = False

    def victim(self, hosts: Sequence[str]) -> str:
        """The host that the fault hits."""
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
    """One run; ``number`` counts the runs of a comparison from 1."""

    number: int
    scenario: Scenario
    system: System
    model: Model
    hosts: int
    round: int

    def __str__(self) -> str:
        return f"{self.scenario} {self.system} {self.model} {self.hosts} hosts, round {self.round}"


def host_counts(hosts: int) -> list[int]:
    """The numbers of hosts for the cold start, so that growth can be seen: one, half of them, all."""
    return sorted({1, (hosts + 1) // 2, hosts})


def pairs_of(scenario: Scenario, pairs: Sequence[tuple[System, Model]]) -> list[tuple[System, Model]]:
    """The systems and models that a scenario is measured with.

    With a fault, a sequential push shows nothing that the parallel push and the cold starts do not show, so
    it is left out if the parallel push is measured.
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
    """All runs in order: by round, then by scenario, then by system and model.

    The first system and model changes with every round and scenario, so that none profits from its position.
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
