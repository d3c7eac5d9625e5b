"""The table of what moves of partitions cost, from what a run on real hosts recorded, into docs/operations.md.

    .venv/bin/python -m tools.move_figures

`MOVES_FIGURES=1 make day-two TEST_ARGS="-k test_moves"` records anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests/data/moves.json"
PAGE = ROOT / "docs/operations.md"
BEGIN, END = "<!-- moves: begin -->", "<!-- moves: end -->"


class Figure(NamedTuple):
    """A playbook's run: its seconds in all and those of the copying, what was copied, and the longest time in which
    some partition of the load acknowledged nothing.
    """

    what: str
    seconds: float
    moving_s: float
    replicas: int
    bytes: int
    gap_s: float


def read(path: Path = DATA) -> tuple[list[str], list[Figure]]:
    """What the run was made with, and its figures."""
    found = json.loads(path.read_text())
    return found["about"], [Figure(**each) for each in found["figures"]]


def write(about: Iterable[str], figures: Iterable[Figure], path: Path = DATA) -> None:
    rows = [each._asdict() for each in figures]
    path.write_text(json.dumps({"about": list(about), "figures": rows}, indent=2) + "\n")


def table(about: Iterable[str], figures: Iterable[Figure]) -> str:
    """What is between the markers."""
    rows = [
        f"| {each.what} | {each.replicas} | {each.bytes / 2**20:.0f} MiB | {each.moving_s:.0f} s | "
        f"{each.seconds:.0f} s | {each.gap_s:.1f} s |"
        for each in figures
    ]
    lines = [
        *(f"- {line}" for line in about),
        "",
        "| playbook | replicas copied | bytes | copying took | playbook took | longest gap |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def with_table(page: str, text: str) -> str:
    """The page with this table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}{END}{after}"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(), table(*read())))


if __name__ == "__main__":
    main()
