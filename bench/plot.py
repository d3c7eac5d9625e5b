"""Draws the advantages of all figures as one picture; matplotlib is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.results import TIE_HIGH, TIE_LOW, Comparison, Verdict

COLOURS = {Verdict.AHEAD: "#2a7f3f", Verdict.TIE: "#b8860b", Verdict.BEHIND: "#b03030"}


def draw(path: Path, comparisons: Sequence[Comparison]) -> bool:
    """Writes a PNG of one bar per figure on a logarithmic scale; False when no figure has two targets."""
    shown = [each for each in comparisons if each.advantage is not None and not each.metric.detail][::-1]
    if not shown:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.33 * len(shown)), layout="constrained")
    for row, each in enumerate(shown):
        assert each.advantage is not None
        assert each.verdict is not None
        least, middle, most = each.advantage.least, each.advantage.median, each.advantage.greatest
        axes.barh(row, middle - 1, left=1, color=COLOURS[each.verdict])
        axes.plot([least, most], [row, row], color="black", linewidth=1)
        axes.annotate(f" {middle:.2f}x", (max(most, 1.0), row), va="center", fontsize=8)
    axes.set_xscale("log")
    axes.axvspan(TIE_LOW, TIE_HIGH, color="#dddddd", zorder=0)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(
        range(len(shown)), [f"{each.metric.title} [{each.metric.unit}]" for each in shown], fontsize=8
    )
    axes.margins(x=0.12)
    axes.set_xlabel("how many times better Landline is than Apache Kafka 3.9.1 (grey: a tie)")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True
