"""Draws one start: a row per process, with its launch above, its own steps below, and a diamond when
it serves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from compare.report.charts.style import COLOURS, FAINT, INK, NARROW_IN
from compare.report.selection import Bar, Line, Timeline

_SHADES = (0.5, 0.26)
"""Shades that distinguish neighbouring steps; text is readable on both, on light and dark screens."""


def draw(shown: Timeline, width_in: float, until_ms: float | None = None) -> Figure:
    """Draws the timeline; ``until_ms`` is the right end, so that pictures below one another can
    be compared.
    """
    count = max(1, len(shown.lines))
    narrow = width_in <= NARROW_IN
    height = 0.5 + 0.36 * count
    figure = Figure(figsize=(width_in, height))
    labels = [_label(line, narrow) for line in shown.lines]
    # Placed by hand: matplotlib's own layouts draw everything twice, and there are a hundred of these.
    left = (0.12 + 0.078 * max(map(len, labels), default=0)) / width_in
    axes: Any = figure.add_axes((left, 0.38 / height, 0.985 - left, 1 - 0.42 / height))
    until = (until_ms or shown.end_ms) * 1.02 / 1000
    per_letter = until / (width_in * (7.0 if narrow else 11.0))
    colour = COLOURS.get(shown.run.model, FAINT)
    for row, line in enumerate(shown.lines):
        _draw_line(axes, row, line, colour, per_letter)
    axes.set_xlim(0, until)
    axes.set_ylim(count - 0.5, -0.55)
    axes.set_yticks(range(len(shown.lines)), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    return figure


def _draw_line(axes: Any, row: int, line: Line, colour: str, per_letter: float) -> None:
    for bar in line.launch:
        shade = {"Connect": 0.3, "Command": 0.55}.get(bar.name, 0.12)
        face = FAINT if bar.ok else INK
        _draw_bar(axes, bar, (row - 0.38, 0.24), face, shade)
        _write(axes, bar, row - 0.26, per_letter, 6.5)
    for number, bar in enumerate(line.own):
        _draw_bar(axes, bar, (row - 0.1, 0.46), colour if bar.ok else INK, _SHADES[number % 2])
        _write(axes, bar, row + 0.13, per_letter, 7.5)
    for ready in line.ready_ms:
        axes.plot(ready / 1000, row + 0.13, marker="D", markersize=5, color=colour, clip_on=False, zorder=4)
    for before, after in pairwise(line.own):
        if after.begin_ms - before.end_ms > 1000:  # the process was gone in between
            axes.plot(
                [before.end_ms / 1000, after.begin_ms / 1000], [row + 0.13] * 2, ":", color=FAINT, linewidth=1
            )


def _draw_bar(axes: Any, bar: Bar, place: tuple[float, float], colour: str, shade: float) -> None:
    span = (bar.begin_ms / 1000, max(bar.end_ms - bar.begin_ms, 1.0) / 1000)
    axes.broken_barh(
        [span], place, facecolor=colour, alpha=shade, linewidth=0, hatch=None if bar.ok else "////"
    )


def _write(axes: Any, bar: Bar, height: float, per_letter: float, size: float) -> None:
    """Writes the name of a bar that is long enough for it."""
    if (bar.end_ms - bar.begin_ms) / 1000 > (len(bar.name) + 1) * per_letter * size / 7.5:
        middle = (bar.begin_ms + bar.end_ms) / 2000
        axes.text(middle, height, bar.name, ha="center", va="center_baseline", fontsize=size, clip_on=True)


def _label(line: Line, narrow: bool) -> str:
    return line.process.replace("spark-", "") if narrow else line.process
