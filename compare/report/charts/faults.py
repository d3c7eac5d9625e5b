"""Draws the cost of each fault: a bar per way, with the wait for a person hatched and the outage shaded.

The bar is the median, its pale end the 95 % interval, its points the rounds. All panels have the same scale,
which starts at zero, so that lengths can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from compare.figures import Comparison, Group
from compare.recorded import MODELS
from compare.report.charts.style import COLOURS, FAINT, INK, LINE, MARKS, NARROW_IN, axes_grid
from compare.report.verdicts import COLD_START, own_figure, unaided
from compare.report.wording import SYSTEMS, capital, scenario, scenario_order, way

_WITHOUT_POWER = {"dead-host", "master-dead-before", "master-dead-during", "master-dead-after"}
_ROW = 0.3
_GAP = 0.35


def draw_faults(comparison: Comparison, outage_s: float, width_in: float) -> Figure:
    """One panel per system. ``outage_s``: how long a host had no power; 0: unknown, nothing is shaded."""
    by_system = {system: faults for system in comparison.systems if (faults := _faults(comparison, system))}
    narrow = width_in <= NARROW_IN
    rows = max((sum(len(groups) + 1 for groups in faults) for faults in by_system.values()), default=2)
    figure, panels = axes_grid(width_in, max(1, len(by_system)), (1.5 if narrow else 1.0) + 0.27 * rows)
    most = max((_latest(groups) for faults in by_system.values() for groups in faults), default=1.0)
    for axes, (system, faults) in zip(panels, by_system.items(), strict=False):
        axes.set_title(SYSTEMS.get(system, system))
        _panel(axes, faults, outage_s)
        axes.set_xlim(0, most * 1.04)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    figure.legend(
        handles=_legend(by_system, outage_s),
        loc="outside lower center",
        ncols=1 if narrow else 3,
        fontsize=8,
    )
    return figure


def _panel(axes: Any, faults: Sequence[Sequence[Group]], outage_s: float) -> None:
    place, ticks = 0.0, []
    for groups in faults:
        top = place
        for group in groups:
            _bar(axes, place, group, own_figure(list(groups)))
            place += _ROW
        ticks.append((top + place - _ROW) / 2)
        if outage_s and groups[0].scenario in _WITHOUT_POWER:
            span = (top - 0.45 * _ROW, place - 0.55 * _ROW)
            axes.fill_between([0, outage_s], *span, color=LINE, alpha=0.75, linewidth=0, zorder=0)
        place += _GAP
    names = [_wrapped(scenario(groups[0].scenario)) for groups in faults]
    axes.set_yticks(ticks, names)
    axes.set_ylim(max(place, 0.5) - _GAP, -0.25)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _bar(axes: Any, place: float, group: Group, name: str) -> None:
    figure = group.figures.get(name)
    colour = COLOURS.get(group.model, FAINT)
    if not figure or figure.median is None:
        axes.text(0, place, " never", va="center", color=colour, fontsize=8)
        return
    whole = figure.median / 1000
    bare = unaided(group, name)
    own = whole if bare is None or bare.median is None else bare.median / 1000
    height = 0.62 * _ROW
    axes.barh(place, own, height, color=colour, alpha=0.8, linewidth=0)
    if whole > own:
        axes.barh(
            place,
            whole - own,
            height,
            left=own,
            facecolor="none",
            edgecolor=colour,
            hatch="////",
            linewidth=0.8,
        )
    if figure.interval:
        low, high = (edge / 1000 for edge in figure.interval)
        axes.plot([low, high], [place, place], color=INK, linewidth=1.2, zorder=4)
    values = [value / 1000 for value in figure.values]
    axes.plot(
        values,
        [place] * len(values),
        MARKS.get(group.model, "o"),
        color=INK,
        markersize=2.6,
        alpha=0.7,
        linewidth=0,
    )


def _legend(by_system: dict[str, list[list[Group]]], outage_s: float) -> list[Any]:
    models = {group.model for faults in by_system.values() for groups in faults for group in groups}
    handles: list[Any] = [
        Patch(facecolor=COLOURS[model], alpha=0.8, label=way(model)) for model in MODELS if model in models
    ]
    handles.append(Patch(facecolor="none", edgecolor=FAINT, hatch="////", label="waiting for a person"))
    if outage_s:
        handles.append(Patch(facecolor=LINE, alpha=0.75, label=f"without power, {outage_s:g} s"))
    handles.append(Line2D([], [], color=INK, marker="o", markersize=2.6, linewidth=1.2, label="rounds, 95 %"))
    return handles


def _latest(groups: Sequence[Group]) -> float:
    name = own_figure(list(groups))
    values = [value for group in groups if name in group.figures for value in group.figures[name].values]
    return max(values, default=0.0) / 1000


def _faults(comparison: Comparison, system: str) -> list[list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in sorted(comparison.groups, key=lambda group: (scenario_order(group.scenario), _order(group))):
        if group.system == system and group.scenario != COLD_START and group.model in MODELS:
            found.setdefault(group.scenario, []).append(group)
    return [
        [group for group in groups if group.hosts == max(other.hosts for other in groups)]
        for groups in found.values()
    ]


def _order(group: Group) -> int:
    return MODELS.index(group.model) if group.model in MODELS else len(MODELS)


def _wrapped(text: str, width: int = 17) -> str:
    """The text in lines of about ``width`` letters."""
    lines = [""]
    for word in capital(text).split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
