"""One round: choose the victims, break, hold, heal, wait until all is well. The history is
judged elsewhere.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from chaos.cluster import ClusterUnderTest, NotHealedError
from chaos.coordination import UnknownError
from chaos.faults import FAULTS, Role, Victims
from chaos.load import Load, LoadFailedError
from chaos.scenarios import Step
from chaos.scripts import SCRIPTS, ScriptFailedError
from lab import LabError
from rig.wait import last_for

PROGRESS_ACKS = 150
ROUNDS_A_WATERMARK = 5
"""Rounds between two reads of all high watermarks: nothing read before may be above them."""
NOBODY = Victims((), 0)


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one step. ``gap_s`` is the longest time without any acknowledgement until all was well.

    ``waited_for`` is the last problem before all was well; ``allowed`` describes anomalies that the topic's
    configuration allows.
    """

    step: Step
    victims: tuple[int, ...]
    seconds: float
    gap_s: float
    finding: str = ""
    waited_for: str = ""
    allowed: str = ""


class Observer(Protocol):
    """A display of a walk's progress."""

    def began(self, step: Step, victims: Victims) -> None:
        """A fault is about to be injected."""

    def ended(self, done: Round) -> None:
        """The round is over."""

    def judging(self, segment: int) -> None:
        """A segment's history is being judged."""


def run_round(cluster: ClusterUnderTest, load: Load, step: Step, observer: Observer) -> Round:
    """Breaks one thing, heals it, and waits until all is well; anything that does not happen in time is
    the finding.
    """
    scenario, victims = step.scenario, NOBODY
    begin, finding, waited_for = time.monotonic(), "", ""
    try:
        victims = resolve(cluster, load, scenario.role, step.pick)
        observer.began(step, victims)
        begin = time.monotonic()
        if scenario.fault in SCRIPTS:
            SCRIPTS[scenario.fault].act(cluster, load)
        else:
            _break_and_mend(cluster, load, step, victims)
        waited_for = cluster.await_whole(load.topics, scenario.heals_within_s)
        load.await_progress(PROGRESS_ACKS, scenario.heals_within_s)
        # A leader that was cut off from its followers may not have noticed yet that they are back, and its
        # request to remove them from the ISR may still be on its way. The next fault must not come before.
        load.await_progress_everywhere(scenario.heals_within_s)
        load.await_transactions(scenario.heals_within_s)
        cluster.await_whole(load.topics, scenario.heals_within_s)
        if step.number % ROUNDS_A_WATERMARK == 0:
            load.observe_high_watermarks()
    except (NotHealedError, ScriptFailedError, LoadFailedError, UnknownError, LabError, OSError) as error:
        finding = f"{type(error).__name__}: {error}"
    end = time.monotonic()
    return Round(step, victims.ids, end - begin, _gap_s(load, begin, end), finding, waited_for)


def _break_and_mend(cluster: ClusterUnderTest, load: Load, step: Step, victims: Victims) -> None:
    fault, begin = FAULTS[step.scenario.fault], time.monotonic()
    fault.inject(cluster, victims)
    if step.rebalance:
        load.rebalance()
    last_for(begin + step.hold_s - time.monotonic())
    fault.heal(cluster, victims)


def _gap_s(load: Load, begin: float, end: float) -> float:
    """The longest gap; the whole round if the load died."""
    try:
        return load.longest_gap_s(begin, end)
    except (LoadFailedError, TimeoutError):
        return end - begin


def resolve(cluster: ClusterUnderTest, load: Load, role: Role, pick: int) -> Victims:
    """The current holder of the role; ``pick`` chooses among several."""
    coordination, everybody = cluster.coordination, tuple(cluster.broker_ids)
    match role:
        case Role.LEADER | Role.FOLLOWER:
            partitions = coordination.partitions(load.topics)
            chosen = partitions[pick % len(partitions)]
            others = [each for each in chosen.replicas if each != chosen.leader]
            follower = others[pick // len(partitions) % len(others)]
            ends = (chosen.leader, follower) if role is Role.LEADER else (follower, chosen.leader)
            return Victims((ends[0],), ends[1])
        case Role.CONTROLLER | Role.COORDINATOR | Role.TRANSACTION_COORDINATOR | Role.ZOOKEEPER_LEADER:
            one = _one(cluster, load, role)
            others = [each for each in everybody if each != one]
            return Victims((one,), others[pick % len(others)])
        case Role.ALL | Role.ENSEMBLE:
            return Victims(everybody, everybody[0])


def _one(cluster: ClusterUnderTest, load: Load, role: Role) -> int:
    if role is Role.ZOOKEEPER_LEADER:
        return cluster.zookeeper_leader()
    if role is Role.CONTROLLER:
        return cluster.coordination.controller()
    if role is Role.TRANSACTION_COORDINATOR:
        return cluster.coordination.transaction_coordinator(load.transactional_id)
    return cluster.coordination.coordinator(load.group)
