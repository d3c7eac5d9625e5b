"""Reads all inputs of a report from one directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.figures import Comparison, read_comparison
from compare.recorded import COMPARISON_FILE, EVENTS_FILE, MANIFEST_FILE, Run, read_manifest, read_runs
from compare.simulation.storms import Storms, read_storms


@dataclass(frozen=True, slots=True)
class Inputs:
    """The measurements and their circumstances."""

    comparison: Comparison
    runs: tuple[Run, ...]
    manifest: Mapping[str, Any]
    storms: Storms

    def facts(self) -> list[tuple[str, str]]:
        """The manifest's and the data's figures as names and texts; nested ones are named by their path."""
        counts = [
            (f"data: {name.replace('_', ' ')}", f"{number:,}")
            for name, number in self.comparison.inputs.items()
            if number is not None
        ]
        return [*_flat(self.manifest), ("data: runs", f"{self.comparison.runs:,}"), *counts]


def read_inputs(directory: Path) -> Inputs:
    """Raises :class:`compare.recorded.Unreadable`."""
    return Inputs(
        read_comparison(directory / COMPARISON_FILE),
        tuple(read_runs(directory / EVENTS_FILE)),
        read_manifest(directory / MANIFEST_FILE),
        read_storms(directory),
    )


def _flat(content: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{path}{key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            facts += _flat(value, f"{name}: ")
        elif value not in (None, "", []):
            facts.append((name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return facts
