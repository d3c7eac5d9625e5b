"""``python -m compare.simulation --input DIR``: prints the simulation's results, and how reliable
they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from compare.recorded import EVENTS_FILE, Unreadable, read_runs
from compare.simulation.storms import read_storms
from compare.simulation.study import study
from compare.simulation.tables import print_study


@click.command()
@click.option(
    "--input",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="Has events.jsonl, or events.jsonl.xz.",
)
def main(source: Path) -> None:
    """Simulates the measured starts on as many hosts as what they share was measured with."""
    try:
        runs = read_runs(source / EVENTS_FILE)
        storms = read_storms(source)
    except Unreadable as error:
        sys.exit(f"simulation: {error}")
    console = Console()
    print_study(console if console.is_terminal else Console(width=110), study(runs, storms=storms))


if __name__ == "__main__":
    main()
