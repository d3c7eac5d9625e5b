"""The table of each way's behaviour under each fault, as rows of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.figures import Comparison, Group
from compare.recorded import MODELS
from compare.report.verdicts import COLD_START, own_figure, unaided
from compare.report.wording import (
    capital,
    count,
    counted,
    listed,
    scenario,
    scenario_order,
    way,
    with_interval,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One way under one fault."""

    model: str
    way: str
    recovered: str
    unaided: str
    all_ready: str
    person: str
    actions: str
    effort: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, with a row for each way that was measured."""

    title: str
    hosts: int
    rows: tuple[Row, ...]


def faults_of(comparison: Comparison, system: str) -> list[Fault]:
    """All faults that were measured for one system, each with the highest number of hosts."""
    own = [group for group in comparison.groups if group.system == system and group.scenario != COLD_START]
    faults = []
    for name in sorted({group.scenario for group in own}, key=scenario_order):
        groups = [group for group in own if group.scenario == name]
        most = max(group.hosts for group in groups)
        shown = [group for model in MODELS for group in groups if (group.model, group.hosts) == (model, most)]
        had_to = own_figure(shown) == "recovered_ms"
        rows = [_row(group, had_to) for group in shown]
        faults.append(Fault(capital(scenario(name)), most, tuple(rows)))
    return faults


def _row(group: Group, had_to_recover: bool) -> Row:
    return Row(
        model=group.model,
        way=way(group.model),
        recovered=_time(group, "recovered_ms") if had_to_recover else "nothing to recover",
        unaided=_bare(group) if had_to_recover else "nothing to recover",
        all_ready=_time(group, "all_ready_ms"),
        person=f"in {group.person_acted} of {counted(group.rounds, 'round')}" if group.person_acted else "no",
        actions=listed(
            [f"{text} ({counted(times, 'time')})" for text, times in sorted(group.actions.items())]
        )
        or "nothing",
        effort=_effort(group, ["commands", "connections"]),
    )


def _time(group: Group, name: str) -> str:
    figure = group.figures.get(name)
    return with_interval(figure) if figure else "not measured"


def _bare(group: Group) -> str:
    if not group.person_acted:
        return "nobody was waited for"
    figure = unaided(group, "recovered_ms")
    return f"at least {with_interval(figure)}" if figure else "not recorded"


def _effort(group: Group, names: Sequence[str]) -> str:
    medians = [group.median(name) for name in names]
    return " / ".join("?" if median is None else count(median) for median in medians)
