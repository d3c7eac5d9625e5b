"""Writes what a test of a day-two playbook measured into docs/operations.md, between the markers of its name.

    python -m tools.day_two_figures docs/figures/reboot.json docs/figures/migrate.json

A file has a `name`, figures of the `whole` run, and `rows`, one for each step. `FIGURES=docs/figures` in the
environment of tests/cluster writes such files (tests/support/figures.py). With --check nothing is written, and the
exit code is 1 if a table is not what its file says.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[1] / "docs" / "operations.md"
# What a figure's key is called in a table's head; its unit is in its value. Others are called by their key.
HEADS = {
    "took_s": "took",
    "down_s": "its broker was away",
    "longest_gap_s": "longest wait of an `acks=all` producer",
    "records": "records acknowledged",
    "lost": "records lost",
}


def head(key: str) -> str:
    return HEADS.get(key, key.removesuffix("_s").replace("_", " "))


def words(key: str, value: object) -> str:
    """A figure with its unit: seconds by a key that ends with _s."""
    if key.endswith("_s"):
        return f"{value} s"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(figures: dict[str, Any]) -> str:
    """The table of the rows, and a line about the whole run."""
    keys = list(figures["rows"][0])
    lines = [[head(key) for key in keys], ["---"] * len(keys)]
    lines += [[words(key, row[key]) for key in keys] for row in figures["rows"]]
    whole = ", ".join(f"{head(key)}: {words(key, value)}" for key, value in figures["whole"].items())
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", f"The whole run: {whole}."])


def put_in(text: str, figures: dict[str, Any]) -> str:
    """The document with the table between the markers of these figures. Raises ValueError without markers."""
    name = figures["name"]
    begin, end = f"<!-- figures: {name} -->\n", f"<!-- end of figures: {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{DOCUMENT.name} has no markers for the figures {name}")
    return f"{before}{begin}{table(figures)}\n{end}{after}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table differs")
    options = parser.parse_args(argv)
    text = written = DOCUMENT.read_text(encoding="utf-8")
    for file in options.files:
        written = put_in(written, json.loads(file.read_text(encoding="utf-8")))
    if options.check:
        return int(written != text)
    DOCUMENT.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
