"""Decides whether the times of cold starts are linear in the number of hosts. Pure.

They are if the fitted line goes through the interval of the median at every one of at least three numbers of
hosts. Two points are always on a line, and a share of explained variance does not reveal a bend.
"""

from __future__ import annotations

from compare.figures import Comparison, Fit, Group
from compare.report.verdicts import COLD_START

LEAST_COUNTS = 3
FIGURE = "all_ready_ms"


def cold_groups(comparison: Comparison, system: str, model: str) -> list[Group]:
    """The cold starts of one system and model, ordered by their hosts."""
    return sorted(
        (
            group
            for group in comparison.groups
            if (group.system, group.model, group.scenario) == (system, model, COLD_START)
        ),
        key=lambda group: group.hosts,
    )


def line_of(comparison: Comparison, system: str, model: str) -> Fit | None:
    """The fitted line of the times until all serve; None if they are not linear."""
    groups = cold_groups(comparison, system, model)
    fit = next(
        (
            fit
            for fit in comparison.fits
            if (fit.system, fit.model, fit.figure, fit.scenario) == (system, model, FIGURE, COLD_START)
        ),
        None,
    )
    if fit is None or len(groups) < LEAST_COUNTS:
        return None
    return fit if all(_goes_through(fit, group) for group in groups) else None


def _goes_through(fit: Fit, group: Group) -> bool:
    figure = group.figures.get(FIGURE)
    if figure is None or figure.interval is None:
        return False
    low, high = figure.interval
    return low <= fit.a_ms + fit.b_ms * group.hosts <= high
