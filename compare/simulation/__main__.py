"""``python -m compare.simulation --input DIR``: prints what the simulation says, and how far it is to be believed."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from compare.recorded import EVENTS_FILE, Unreadable, read_runs
from compare.simulation.assumptions import assumptions
from compare.simulation.study import Study, study


def print_study(console: Console, found: Study) -> None:
    """The checks, the curves, the disturbed starts, the assumptions."""
    if not found.measured:
        console.print("No cold start in which all served: nothing to simulate from.")
        return
    console.print(_checks(found))
    console.print(_curves(found))
    console.print(_disturbed(found))
    console.print("[bold]Assumptions[/]")
    for sentence in assumptions(found):
        console.print(f"- {sentence}", highlight=False)


def _checks(found: Study) -> Table:
    table = _table(
        "Simulated beside measured: until all served",
        ["system", "model", "hosts", "drawn from"],
        ["measured s", "simulated s", "error", "rounds within 5-95 %"],
    )
    for check in found.checks:
        table.add_row(
            check.system,
            check.model,
            str(check.hosts),
            check.source,
            _seconds(check.measured_ms),
            _seconds(check.simulated_ms),
            f"{check.error:+.0%}",
            f"{check.inside} of {check.rounds}",
        )
    return table


def _curves(found: Study) -> Table:
    counts = [point.members for point in found.curves[0].points]
    table = _table(
        "Simulated seconds until all serve, by number of members (median)",
        ["system", "model", "at a time"],
        [f"{count:,}" for count in counts],
    )
    for curve in found.curves:
        lanes = _at_a_time(curve.model, curve.lanes)
        table.add_row(
            curve.system, curve.model, lanes, *[_seconds(point.median_ms) for point in curve.points]
        )
    return table


def _disturbed(found: Study) -> Table:
    table = _table(
        f"{found.curves[0].points[-1].members:,} members, with something wrong",
        ["system", "model", "what"],
        ["seconds until all serve", "need a person", "connections"],
    )
    for row in found.disturbed:
        table.add_row(
            row.system,
            row.model,
            row.what,
            _seconds(row.median_ms),
            f"{row.left_out:,.0f}",
            f"{row.connections:,.0f}",
        )
    return table


def _table(title: str, texts: list[str], numbers: list[str]) -> Table:
    table = Table(title=title, header_style="bold cyan", row_styles=("", "dim"))
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _at_a_time(model: str, lanes: int | None) -> str:
    if model == "independent":
        return "each itself"
    return "1" if model == "push-sequential" else "all" if lanes is None else str(lanes)


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.1f}"


@click.command()
@click.option("--input", "source", type=click.Path(path_type=Path), required=True, help="Has events.jsonl.")
def main(source: Path) -> None:
    """Simulates the measured starts on up to 10,000 hosts."""
    try:
        runs = read_runs(source / EVENTS_FILE)
    except Unreadable as error:
        sys.exit(f"simulation: {error}")
    print_study(Console(), study(runs))


if __name__ == "__main__":
    main()
