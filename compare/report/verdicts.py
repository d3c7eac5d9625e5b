"""Decides for each figure whether the data show a difference between the two ways. Pure.

A difference is shown if the 95 % intervals of the medians, of at least six rounds each, do not overlap; or if
one occurred in most rounds and the other in hardly any. Everything else shows no difference. If a person
acted, the time that the harness waited for the person must not decide. Members that start by themselves are
faster only if they still are without that wait; :attr:`Verdict.WAITED` means that they are faster only
because of the wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from compare.figures import Comparison, Figure, Group
from compare.recorded import MODELS
from compare.report.wording import scenario_order

ALONE, PUSHES = MODELS[0], MODELS[1:]
COLD_START = "cold-start"
LEAST_ROUNDS = 6
"""The lowest number of values whose range contains the median with 95 % confidence."""


class Verdict(Enum):
    """The way that was faster."""

    ALONE = "each by itself"
    WAITED = "each by itself, by the wait for a person alone"
    PUSHED = "pushed"
    LEVEL = "no difference shown"
    UNKNOWN = "too few rounds"


@dataclass(frozen=True, slots=True)
class Duel:
    """One figure of members that start by themselves, compared with one kind of push.

    ``unaided``: the push's figure without the wait for a person; the same figure if nobody was waited for,
    None if that was not recorded.
    """

    system: str
    scenario: str
    hosts: int
    figure: str
    push: str
    alone: Figure
    pushed: Figure
    unaided: Figure | None

    @property
    def verdict(self) -> Verdict:
        """What the data show."""
        found = judge(self.alone, self.pushed)
        if found is not Verdict.ALONE:
            return found
        if self.unaided is None:
            return Verdict.UNKNOWN
        return found if judge(self.alone, self.unaided) is found else Verdict.WAITED

    @property
    def apart_ms(self) -> float | None:
        """How much later the push is (below 0: earlier), without the wait for a person: the difference of
        the medians.
        """
        if self.unaided is None or self.alone.median is None or self.unaided.median is None:
            return None
        return self.unaided.median - self.alone.median


def judge(alone: Figure, pushed: Figure) -> Verdict:
    """Which of two times is shorter, by the module's rule, with their waits included."""
    if min(alone.rounds, pushed.rounds) < LEAST_ROUNDS:
        return Verdict.UNKNOWN
    comes = [2 * figure.n > figure.rounds for figure in (alone, pushed)]
    if not all(comes):
        return Verdict.LEVEL if comes[0] == comes[1] else Verdict.ALONE if comes[0] else Verdict.PUSHED
    if min(alone.n, pushed.n) < LEAST_ROUNDS or alone.interval is None or pushed.interval is None:
        return Verdict.UNKNOWN
    if alone.interval[1] < pushed.interval[0]:
        return Verdict.ALONE
    return Verdict.PUSHED if pushed.interval[1] < alone.interval[0] else Verdict.LEVEL


def duels(comparison: Comparison) -> list[Duel]:
    """The main figure of every scenario and system, compared with each push, on the most hosts that both were
    measured on.
    """
    return [duel for system in comparison.systems for duel in _duels_of(comparison, system)]


def best_duels(comparison: Comparison) -> list[Duel]:
    """For each system and scenario the duel with the faster push, so that members by themselves
    count once.
    """
    best: dict[tuple[str, str], Duel] = {}
    for duel in duels(comparison):
        key = duel.system, duel.scenario
        if key not in best or _soonest(duel) < _soonest(best[key]):
            best[key] = duel
    return list(best.values())


def own_figure(groups: list[Group]) -> str:
    """The figure by which a scenario is judged: the recovery from its fault, or the time until all serve."""
    if groups[0].scenario == COLD_START:
        return "all_ready_ms"
    recovered = any((figure := group.figures.get("recovered_ms")) and figure.n for group in groups)
    return "recovered_ms" if recovered else "all_ready_ms"


def unaided(group: Group, figure: str) -> Figure | None:
    """A group's figure without the wait for a person; None if that was not recorded."""
    if figure == "recovered_ms" and group.person_acted:
        found = group.figures.get("unaided_ms")
        return found if found and found.n else None
    return group.figures.get(figure)


def _soonest(duel: Duel) -> float:
    figure = duel.unaided or duel.pushed
    return float("inf") if figure.median is None else figure.median


def _duels_of(comparison: Comparison, system: str) -> Iterator[Duel]:
    scenarios = dict.fromkeys(group.scenario for group in comparison.groups if group.system == system)
    for scenario in sorted(scenarios, key=scenario_order):
        for push in PUSHES:
            if (pair := _pair(comparison, system, scenario, push)) is None:
                continue
            figure = own_figure(list(pair))
            alone, pushed = (group.figures.get(figure) for group in pair)
            if alone and pushed:
                bare = unaided(pair[1], figure)
                yield Duel(system, scenario, pair[0].hosts, figure, push, alone, pushed, bare)


def _pair(comparison: Comparison, system: str, scenario: str, push: str) -> tuple[Group, Group] | None:
    hosts = sorted({group.hosts for group in comparison.groups if group.scenario == scenario}, reverse=True)
    for number in hosts:
        alone = comparison.find(system, ALONE, scenario, number)
        pushed = comparison.find(system, push, scenario, number)
        if alone and pushed:
            return alone, pushed
    return None
