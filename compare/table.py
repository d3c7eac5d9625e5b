"""A comparison's figures for the terminal: medians over the rounds, model beside model."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from compare.events import Event
from compare.scenarios import Model, Scenario, System

NEVER = "never"


def medians_table(events: Iterable[Event]) -> Table:
    """A row per system, scenario, hosts and model, from the launcher's ``Run`` events."""
    runs = [event for event in events if event["step"] == "Run" and "run" in event]
    groups: dict[tuple[int, int, int, int], list[Event]] = {}
    for event in runs:
        groups.setdefault(_place(event), []).append(event)
    table = Table(title="Medians over the rounds, times in seconds", title_justify="left")
    for name in ("system", "scenario", "hosts", "model"):
        table.add_column(name)
    for name in ("runs", "first", "all", "recovered", "person", "commands", "connections", "CPU"):
        table.add_column(name, justify="right")
    before: tuple[int, ...] = ()
    for place in sorted(groups):
        found = [event["run"] for event in groups[place]]
        if before and place[:3] != before[:3]:
            table.add_section()
        before = place
        run = found[0]
        table.add_row(
            run["system"],
            run["scenario"],
            str(run["hosts"]),
            groups[place][0]["model"],
            str(len(found)),
            *(seconds([r[key] for r in found]) for key in ("first_ready_us", "all_ready_us", "recovered_us")),
            f"{sum(r['person_acted'] for r in found)}/{len(found)}",
            *(f"{statistics.median(r[key] for r in found):g}" for key in ("commands", "connections")),
            f"{statistics.median(r['cpu_ms'] for r in found) / 1000:.2f}",
        )
    return table


def seconds(values_us: Sequence[int | None]) -> str:
    """The median in seconds, and how often there was no value, if ever."""
    known = [value for value in values_us if value is not None]
    if not known:
        return "-"
    missing = f" ({len(values_us) - len(known)} {NEVER})" if len(known) < len(values_us) else ""
    return f"{statistics.median(known) / 1e6:.2f}{missing}"


def _place(event: dict[str, Any]) -> tuple[int, int, int, int]:
    run = event["run"]
    return (
        list(System).index(System(run["system"])),
        list(Scenario).index(Scenario(run["scenario"])),
        run["hosts"],
        list(Model).index(Model(event["model"])),
    )
