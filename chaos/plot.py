"""Draws the comparison of gaps; matplotlib is imported only when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chaos.gaps import GOALS_S, PRODUCTS, Row

COLOURS = ("#2a7f3f", "#8a8a8a")
BAR = 0.38


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Writes a PNG. Each fault has a bar per product up to the median, a line from lowest to highest, and the
    goal as a mark.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.75 * len(rows)), layout="constrained")
    for place, row in enumerate(rows):
        for number, (product, colour) in enumerate(zip(PRODUCTS, COLOURS, strict=True)):
            if product.name not in row.spreads:
                continue
            least, median, greatest = row.spreads[product.name]
            at = place + (number - 0.5) * BAR
            axes.barh(at, median, BAR, color=colour, label=product.name if place == 0 else None)
            axes.plot([least, greatest], [at, at], color="black", linewidth=1)
            axes.annotate(f" {median:.2f} s", (greatest, at), va="center", fontsize=8)
        if row.fault in GOALS_S:
            goal = GOALS_S[row.fault]
            axes.plot([goal, goal], [place - BAR, place + BAR], color="#b03030", linewidth=1.5)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_yticks(range(len(rows)), [row.fault for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("longest time without an acknowledgement, s (red: the goal)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
