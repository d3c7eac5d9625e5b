"""The short answer, chosen and filled by the data: which way is faster, more robust, and simpler. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.figures import Comparison, Group
from compare.recorded import MODELS
from compare.report.verdicts import COLD_START, LEAST_ROUNDS, Duel, Verdict, best_duels
from compare.report.wording import SYSTEMS, counted, duration, listed, way


@dataclass(frozen=True, slots=True)
class Point:
    """One finding: its title, and its sentence, which may end in a list of parts."""

    title: str
    lead: str
    parts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole sentence in one line."""
        return f"{self.lead} {'; '.join(self.parts)}." if self.parts else self.lead


def in_short(comparison: Comparison) -> list[Point]:
    """The overall result for all systems: which way is faster, needs fewer people, and needs
    fewer commands.
    """
    points = [
        Point("Sooner?", _sooner(comparison)),
        Point("Sturdier?", _sturdier(comparison)),
        Point("Simpler?", "For a cold start the launcher makes", _simpler(comparison)),
    ]
    return [point for point in points if point.parts or point.title != "Simpler?"]


def _sooner(comparison: Comparison) -> str:
    found = best_duels(comparison)
    if not found:
        return "Nothing was measured in both ways, so nothing can be compared."
    if all(duel.verdict is Verdict.UNKNOWN for duel in found):
        return f"Too little was recorded to tell: it takes {LEAST_ROUNDS} rounds at least."
    told = {verdict: [duel for duel in found if duel.verdict is verdict] for verdict in Verdict}
    parts = [
        f"members that start by themselves were sooner in {_counted_by(told[Verdict.ALONE])}",
        f"pushed ones in {_counted_by(told[Verdict.PUSHED])}",
    ]
    if waited := told[Verdict.WAITED]:
        parts.insert(1, f"only because the push waited for a person in {len(waited)}")
    parts.append(f"no difference is shown in {len(told[Verdict.LEVEL])}")
    if unknown := told[Verdict.UNKNOWN]:
        parts.append(f"too little was recorded to tell of {len(unknown)}")
    return (
        f"Of {counted(len(found), 'comparison')} of times with the quicker push, {listed(parts)}. "
        "How long the harness waited in a person's place is taken out."
    )


def _counted_by(duels: Sequence[Duel]) -> str:
    """The number of duels, and the lowest and highest difference of their medians."""
    apart = sorted(abs(duel.apart_ms) for duel in duels if duel.apart_ms is not None)
    if not apart:
        return str(len(duels))
    least, most = duration(apart[0]), duration(apart[-1])
    return f"{len(duels)} (by {least})" if least == most else f"{len(duels)} (by {least} to {most})"


def _sturdier(comparison: Comparison) -> str:
    parts = []
    for model in MODELS:
        own = [group for group in comparison.groups if group.model == model and group.scenario != COLD_START]
        if own:
            rounds = sum(group.rounds for group in own)
            needing = sum(group.person_acted for group in own)
            parts.append(f"{needing} of {counted(rounds, 'round')} {way(model)}")
    if not parts:
        return "No fault was measured."
    return (
        f"With a fault, a person had to act in {listed(parts)}. "
        "Nothing but a person starts again what was pushed: that is the way itself more than a finding."
    )


def _simpler(comparison: Comparison) -> tuple[str, ...]:
    parts = []
    for model in MODELS:
        groups = [comparison.find(system, model, COLD_START) for system in comparison.systems]
        made = {group.system: launcher_s_part(group) for group in groups if group and launcher_s_part(group)}
        if len(set(made.values())) == 1:
            parts.append(f"{next(iter(made.values()))} {way(model)}")
        elif made:
            parts.append(
                f"{listed([f'{text} for {SYSTEMS[system]}' for system, text in made.items()])} {way(model)}"
            )
    return tuple(parts)


def launcher_s_part(group: Group) -> str:
    """What the launcher does in a group's rounds; empty when that was not counted."""
    commands, connections = (group.median(name) for name in ("commands", "connections"))
    if commands is None or connections is None:
        return ""
    return f"{counted(commands, 'command')} and {counted(connections, 'connection')}"
