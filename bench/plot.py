"""Draws all figures' advantages as one picture; matplotlib is imported only when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import Report, Section
from bench.results import TIE_HIGH, TIE_LOW, Comparison, Verdict

COLOURS = {Verdict.AHEAD: "#2a7f3f", Verdict.TIE: "#b8860b", Verdict.BEHIND: "#b03030"}
ROW_INCHES = 0.24


def draw(path: Path, report: Report) -> bool:
    """Writes a PNG: a bar per figure against the first target, a dot against each other; False if nothing
    is compared.
    """
    shown = [(section, _compared(section, report)) for section in report.sections]
    shown = [(section, compared) for section, compared in shown if compared]
    if not shown:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = sum(len(compared) + 1 for _, compared in shown)
    figure, axes = plt.subplots(figsize=(11, 1.2 + ROW_INCHES * rows), layout="constrained")
    labels = _draw_rows(axes, shown, report.others)
    axes.set_xscale("log")
    axes.axvspan(TIE_LOW, TIE_HIGH, color="#dddddd", zorder=0)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([row for row, _ in labels], [text for _, text in labels], fontsize=7.5)
    for (_, text), tick in zip(labels, axes.get_yticklabels(), strict=True):
        tick.set_fontweight("normal" if text.endswith("]") else "bold")
    axes.set_ylim(-rows + 0.3, 0.7)
    axes.margins(x=0.1)
    others = ", dots: ".join(report.others)
    axes.set_xlabel(f"how many times better Landline is; bars: {others}; grey: a tie; |: the goal")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def _compared(section: Section, report: Report) -> list[Comparison]:
    first = report.others[0] if report.others else ""
    return [each for each in section.comparisons if first in each.advantages and not each.metric.detail]


def _draw_rows(
    axes: Any, shown: Sequence[tuple[Section, Sequence[Comparison]]], others: Sequence[str]
) -> list[tuple[int, str]]:
    """Draws from the top down; returns each row's place and label. A suite's title has its own row."""
    labels, row = [], 0
    for section, compared in shown:
        labels.append((row, section.title))
        for each in compared:
            row -= 1
            _draw_row(axes, row, each, others)
            labels.append((row, f"{each.metric.title} [{each.metric.unit}]"))
        row -= 1
    return labels


def _draw_row(axes: Any, row: int, each: Comparison, others: Sequence[str]) -> None:
    assert each.verdict is not None
    first = each.advantages[others[0]]
    axes.barh(row, first.median - 1, left=1, height=0.7, color=COLOURS[each.verdict])
    axes.plot([first.least, first.greatest], [row, row], color="black", linewidth=1)
    for other in others[1:]:
        if spread := each.advantages.get(other):
            axes.plot(spread.median, row, "o", markersize=4, markerfacecolor="white", markeredgecolor="black")
    if each.metric.goal is not None and each.metric.goal.times is not None:
        axes.plot(each.metric.goal.times, row, "|", markersize=10, markeredgewidth=2, color="#1f4e9c")
    place = max(1.0, *(spread.greatest for spread in each.advantages.values()))
    axes.annotate(f"  {first.median:.2f}x", (place, row), va="center", fontsize=7)
