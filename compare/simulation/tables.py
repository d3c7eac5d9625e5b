"""Prints a study in the terminal: first its reliability, then its results, then its assumptions."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from compare.recorded import MODELS
from compare.simulation.assumptions import assumptions
from compare.simulation.study import Disturbed, Study

_SHORT = {"independent": "by itself", "push-parallel": "parallel", "push-sequential": "in turn"}


def print_study(console: Console, found: Study) -> None:
    """Prints everything, or why there is nothing to print."""
    if not found.measured:
        console.print("No cold start in which all served: nothing to simulate from.")
        return
    for table in (_checks(found), _curves(found), *(_disturbed(found, name) for name in found.costs)):
        if table.row_count:
            console.print(table)
    console.print("[bold]It assumes[/]")
    for sentence in assumptions(found):
        console.print(f"- {sentence}", highlight=False)


def _checks(found: Study) -> Table:
    table = _table(
        "Simulated beside measured: seconds until all serve",
        ["system", "start", "drawn from"],
        ["hosts", "measured", "simulated", "error", "in band"],
    )
    for check in found.checks:
        table.add_row(
            check.system,
            _SHORT.get(check.model, check.model),
            check.source,
            str(check.hosts),
            _seconds(check.measured_ms),
            _seconds(check.simulated_ms),
            f"{check.error:+.0%}",
            f"{check.inside} of {check.rounds}",
        )
    return table


def _curves(found: Study) -> Table:
    """For each system's highest number: the band, and the part of it that members share."""
    table = _table(
        "Simulated seconds until all serve: at least", ["system", "start"], ["hosts", "band", "shared"]
    )
    for curve in found.curves:
        for point in curve.points:
            if point.members in {10, 100, 1_000, found.reach[curve.system]}:
                band = f"{_seconds(point.low_ms)} to {_seconds(point.high_ms)}"
                shared = _seconds(point.shared_ms) if point.shared_ms else "not measured"
                start = _start(curve.model, curve.lanes)
                table.add_row(curve.system, start, f"{point.members:,}", band, shared)
    return table


def _disturbed(found: Study, system: str) -> Table:
    """The band in seconds, followed by the number of members that no connection reached."""
    own = [row for row in found.disturbed if row.system == system]
    models = [model for model in MODELS if any(row.model == model for row in own)]
    title = f"{system}, {found.reach.get(system, 0):,} hosts: seconds (members left for a person)"
    table = _table(title, ["what is wrong"], [_SHORT[model] for model in models])
    for what in dict.fromkeys(row.what for row in own):
        cells = {row.model: _cell(row) for row in own if row.what == what}
        table.add_row(what, *[cells.get(model, "") for model in models])
    return table


def _cell(row: Disturbed) -> str:
    return f"{_seconds(row.low_ms)} to {_seconds(row.high_ms)}" + (
        f" ({row.left_out:,.0f})" if row.left_out else ""
    )


def _table(title: str, texts: list[str], numbers: list[str]) -> Table:
    table = Table(title=title, header_style="bold cyan", row_styles=("", "dim"))
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _start(model: str, lanes: int | None) -> str:
    if model == "push-parallel":
        return f"{lanes} at a time" if lanes else "all at once"
    return _SHORT.get(model, model)


def _seconds(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    return f"{seconds:.2f}" if seconds < 9.995 else f"{seconds:,.1f}"
