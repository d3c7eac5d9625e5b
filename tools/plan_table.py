"""Prints a plan that `make plan` wrote: what a deploy does with each broker, whether it may now, and how long.

python -m tools.plan_table build/plan.json     exit code 0; 2 when there is no plan
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

IN_WORDS = {
    "unchanged": "unchanged",
    "files": "unchanged; its files are corrected",
    "live": "changed live",
    "restart": "restart",
    "start": "start",
    "new": "new",
    "leave": "stopped: it leaves",
}
NOTHING = "Nothing to do with brokers and ZooKeeper. The rest of a deploy is not planned."
PLACES = ("broken", "others", "controller")
STYLES = {"+": "green", "-": "red"}

Row = Mapping[str, Any]


def in_order(rows: Sequence[Row]) -> list[Row]:
    """The brokers in the order of their turns: the controller last."""
    return sorted(rows, key=lambda row: (row["action"] == "unchanged", PLACES.index(row["place"]), row["id"]))


def allowed(row: Row) -> str:
    """Whether it may now, and by what rule, as one table cell."""
    if row["allowed"] is None:
        return ""
    words = str(row["allowed"]["why"])
    return words if row["allowed"]["now"] else f"not now: {words}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def table(plan: Row) -> Table:
    """The table of brokers and servers."""
    found = Table(title=f"plan: release {plan['release']}", title_justify="left")
    for name in ("what", "host", "does", "may now", "takes"):
        found.add_column(name, overflow="fold")
    for row in in_order(plan["brokers"]):
        times = f" {row['turns']} times" if row["turns"] > 1 and row["action"] == "restart" else ""
        took = duration(row["seconds"]) if row["seconds"] else ""
        cells = (f"broker {row['id']}", row["host"], IN_WORDS[row["action"]] + times, allowed(row), took)
        found.add_row(*map(Text, cells))
    for row in plan["zookeeper"]:
        found.add_row(
            *map(Text, (f"ZooKeeper {row['id']}", row["host"], IN_WORDS[row["action"]], row["why"], ""))
        )
    for host in plan["unreached"]:
        found.add_row("", host, "not reached: stays as it is", "", "")
    return found


def differences(plan: Row) -> list[Text]:
    """What would be written, by broker and server; hosts with the same lines once."""
    by_lines: dict[tuple[str, ...], list[str]] = {}
    for kind, name in (("brokers", "broker"), ("zookeeper", "ZooKeeper")):
        for row in plan[kind]:
            lines = tuple(
                line.replace(f"broker-{row['id']}.", "broker-ID.").replace(
                    f"broker@{row['id']}.", "broker@ID."
                )
                for line in row["diff"]
                if "LANDLINE_FINGERPRINT=" not in line
            )
            if any(line[:1] in STYLES for line in lines):
                by_lines.setdefault(lines, []).append(f"{name} {row['id']}")
    found = []
    for lines, names in by_lines.items():
        found.append(Text(", ".join(names), style="bold"))
        shown = [
            line
            for line, following in zip(lines, [*lines[1:], "/"], strict=True)
            if line[:1] in STYLES or following[:1] in STYLES
        ]
        found += [Text(f"  {line}", style=STYLES.get(line[:1], "")) for line in shown]
    return found


def summary(plan: Row) -> str:
    """How long all of it takes, in a line."""
    actions = [row["action"] for row in plan["brokers"]]
    if {*actions, *(row["action"] for row in plan["zookeeper"])} <= {"unchanged"}:
        return NOTHING
    measured = "as the last turns of these brokers took"
    how = measured if plan["is_measured"] else "from their last starts: no turn was measured yet"
    restarts = actions.count("restart")
    refused = [row for row in plan["brokers"] if row["allowed"] is not None and not row["allowed"]["now"]]
    later = f" {len(refused)} would have to wait, or be refused." if refused else ""
    plural = "" if restarts == 1 else "s"
    servers = sum(row["action"] != "unchanged" for row in plan["zookeeper"])
    steps = f" and {servers} step{'' if servers == 1 else 's'} of ZooKeeper" if servers else ""
    return f"{restarts} restart{plural}{steps}, about {duration(plan['seconds'])} in all, {how}.{later}"


def main(arguments: Sequence[str]) -> int:
    """The command."""
    if len(arguments) != 1:
        Console(stderr=True).print(__doc__, markup=False)
        return 2
    try:
        plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        shown = Group(*differences(plan), table(plan), Text(summary(plan)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        Console(stderr=True).print(f"{arguments[0]} is no plan: {error!r}", markup=False)
        return 2
    Console().print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
