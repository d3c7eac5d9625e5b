"""``python -m compare.report --input DIR --output DIR2``: writes the page and its pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from compare.recorded import Unreadable
from compare.report.inputs import read_inputs
from compare.report.page import write_report
from compare.report.publication import publish
from compare.simulation.study import LARGEST, study


@click.command()
@click.option(
    "--input",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="Has events.jsonl (or .xz), comparison.json, manifest.json and storms.json.",
)
@click.option("--output", "target", type=click.Path(path_type=Path), required=True, help="Is made.")
@click.option(
    "--simulate-to",
    "largest",
    default=LARGEST,
    show_default=True,
    help="Members of the largest start, at most.",
)
@click.option(
    "--publish",
    "data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keeps the data there, packed, and the summary as the output's README.md.",
)
@click.option(
    "--readme",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --publish: gets the answer.",
)
def main(source: Path, target: Path, largest: int, data: Path | None, readme: Path | None) -> None:
    """Makes one page of a comparison, that loads nothing from anywhere, and its pictures beside it."""
    try:
        if data is not None:
            publish(source, data, target, readme)
            print(f"published in {target}")  # noqa: T201 - the command's output
            return
        inputs = read_inputs(source)
    except (Unreadable, OSError, ValueError) as error:
        sys.exit(f"report: {error}")
    print(write_report(inputs, study(inputs.runs, largest, inputs.storms), target))  # noqa: T201 - the command's output


if __name__ == "__main__":
    main()
