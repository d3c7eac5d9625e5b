"""Keeps what a test measured, for the documentation: `FIGURES=docs/figures make day-two` writes it again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

Figures = Mapping[str, float | int | str]


def keep_figures(name: str, whole: Figures, rows: Sequence[Figures]) -> None:
    """Writes NAME.json into the directory that the environment's FIGURES names; does nothing without it. Shows
    the figures in any case.
    """
    text = json.dumps(
        {"name": name, "whole": rounded(whole), "rows": [rounded(row) for row in rows]}, indent=2
    )
    print(text)
    if directory := os.environ.get("FIGURES"):
        Path(directory, f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def rounded(figures: Figures) -> Figures:
    """The figures with hundredths at most."""
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}
