"""Draws how the time until all serve grows with the number of hosts: measured, fitted and simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from compare.figures import Comparison
from compare.recorded import MODELS
from compare.report.charts.style import COLOURS, MARKS, axes_grid
from compare.report.lines import line_of
from compare.report.verdicts import COLD_START
from compare.report.wording import SYSTEMS, simulated_way, way
from compare.simulation.study import Curve, Study

_DASHES = {None: "-", 8: (0, (1, 1)), 32: (0, (3, 1.5)), 128: (0, (6, 2))}
_SECONDS = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}


def draw_measured(comparison: Comparison, width_in: float) -> Figure:
    """One panel per system: every round as a point, and the line through them if they are on a line."""
    figure, panels = axes_grid(width_in, max(1, len(comparison.systems)), 2.7)
    for axes, system in zip(panels, comparison.systems, strict=False):
        axes.set_title(SYSTEMS.get(system, system))
        for model in MODELS:
            _measured(axes, comparison, system, model)
        axes.set_xlabel("hosts")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
        axes.margins(x=0.12)
        axes.set_ylim(bottom=0)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize=8)
    return figure


def draw_simulated(comparison: Comparison, study: Study, width_in: float) -> Figure:
    """One panel per system, on logarithmic scales: simulated bands, their lower ends as lines,
    measured medians.
    """
    systems = list(dict.fromkeys(curve.system for curve in study.curves))
    figure, panels = axes_grid(width_in, max(1, len(systems)), 3.4)
    for axes, system in zip(panels, systems, strict=False):
        axes.set_title(SYSTEMS.get(system, system))
        for curve in (curve for curve in study.curves if curve.system == system):
            _simulated(axes, curve)
        for model in MODELS:
            if points := _medians(comparison, system, model):
                axes.plot(
                    *zip(*points, strict=True), MARKS[model], color=COLOURS[model], markersize=6, linewidth=0
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("hosts, a member on each")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        low, high = axes.get_ylim()
        ticks = {seconds: name for seconds, name in _SECONDS.items() if low <= seconds <= high}
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
        axes.legend(loc="upper left", fontsize=7.5)
    return figure


def _measured(axes: Any, comparison: Comparison, system: str, model: str) -> None:
    rounds = _rounds(comparison, system, model)
    if not rounds:
        return
    aside = (MODELS.index(model) - 1) * 0.06  # so that points of two models do not hide each other
    hosts, seconds = zip(*rounds, strict=True)
    axes.plot(
        [number + aside for number in hosts],
        seconds,
        MARKS[model],
        color=COLOURS[model],
        markersize=4.5,
        alpha=0.7,
        linewidth=0,
        label=way(model),
    )
    if fit := line_of(comparison, system, model):
        ends = np.array([min(hosts), max(hosts)])
        axes.plot(ends, (fit.a_ms + fit.b_ms * ends) / 1000, color=COLOURS[model], linewidth=1.4)


def _simulated(axes: Any, curve: Curve) -> None:
    """The band, and its lower end as a line: it is known that a start takes at least this long."""
    members = [point.members for point in curve.points]
    style: Any = _DASHES.get(curve.lanes, "-.")
    label = simulated_way(curve.model, curve.lanes)
    low = [point.low_ms / 1000 for point in curve.points]
    axes.plot(members, low, color=COLOURS[curve.model], linestyle=style, linewidth=1.6, label=label)
    if curve.lanes is None:
        high = [point.high_ms / 1000 for point in curve.points]
        axes.fill_between(members, low, high, color=COLOURS[curve.model], alpha=0.18, linewidth=0)


def _rounds(comparison: Comparison, system: str, model: str) -> list[tuple[int, float]]:
    return [
        (group.hosts, value / 1000)
        for group in comparison.groups
        if (group.system, group.model, group.scenario) == (system, model, COLD_START)
        for value in (group.figures["all_ready_ms"].values if "all_ready_ms" in group.figures else ())
    ]


def _medians(comparison: Comparison, system: str, model: str) -> list[tuple[int, float]]:
    return [
        (group.hosts, median / 1000)
        for group in comparison.groups
        if (group.system, group.model, group.scenario) == (system, model, COLD_START)
        and (median := group.median("all_ready_ms")) is not None
    ]
