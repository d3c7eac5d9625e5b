"""Draws distributions side by side: every round as a point, the median as a line, its 95 % interval as
a bar.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from compare.figures import Comparison, Group
from compare.recorded import MODELS
from compare.report.charts.style import COLOURS, FAINT, INK, MARKS, WIDE_IN, axes_grid
from compare.report.verdicts import COLD_START
from compare.report.wording import SYSTEMS, duration, way


def draw_cold_starts(comparison: Comparison, width_in: float) -> Figure:
    """One panel per system: the time until all serve, with a row for each model and number of hosts."""
    by_system = {system: _cold(comparison, system) for system in comparison.systems}
    rows = max((len(groups) for groups in by_system.values()), default=1)
    figure, panels = axes_grid(width_in, max(1, len(by_system)), 0.9 + 0.3 * rows)
    for axes, (system, groups) in zip(panels, by_system.items(), strict=False):
        axes.set_title(SYSTEMS.get(system, system))
        counts = sorted({group.hosts for group in groups})
        # There is half a row between two numbers of hosts.
        places = [row + counts.index(group.hosts) / 2 for row, group in enumerate(groups)]
        for place, group in zip(places, groups, strict=True):
            _draw_row(axes, place, group, "all_ready_ms")
        axes.set_yticks(places, [_row_name(group, width_in) for group in groups])
        _finish(axes, max(places, default=0) + 1)
        axes.set_xlim(left=0)
    return figure


def _draw_row(axes: Any, row: float, group: Group, name: str) -> None:
    figure = group.figures.get(name)
    colour = COLOURS.get(group.model, FAINT)
    if not figure or figure.median is None:
        axes.text(
            0.02, row, "never", transform=axes.get_yaxis_transform(), va="center", color=colour, fontsize=8
        )
        return
    if figure.interval:
        low, high = (edge / 1000 for edge in figure.interval)
        axes.plot([low, high], [row, row], color=colour, linewidth=7, alpha=0.28)
    values = [value / 1000 for value in figure.values]
    mark = MARKS.get(group.model, "o")
    axes.plot(values, [row] * len(values), mark, color=colour, markersize=4.5, alpha=0.75, linewidth=0)
    middle = figure.median / 1000
    axes.plot([middle, middle], [row - 0.11, row + 0.11], color=INK, linewidth=2)


def _finish(axes: Any, rows: float) -> None:
    axes.set_ylim(max(rows, 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 120 else duration(seconds * 1000)


def _cold(comparison: Comparison, system: str) -> list[Group]:
    found = [group for group in comparison.groups if (group.system, group.scenario) == (system, COLD_START)]
    return sorted(found, key=lambda group: (group.hosts, _place(group)))


def _place(group: Group) -> int:
    return MODELS.index(group.model) if group.model in MODELS else len(MODELS)


def _row_name(group: Group, width_in: float) -> str:
    several = f"{group.hosts} hosts" if group.hosts > 1 else "1 host"
    between = ", " if width_in >= WIDE_IN else "\n"
    return f"{way(group.model) if group.model in MODELS else group.model}{between}{several}"
