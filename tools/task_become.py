"""Gives every task of the roles that acts on a host its `become: true`, so that a role works in a play without it.

python tools/task_become.py [--check]     --check only names the tasks that lack it

A task that needs no root, or acts on the control node, is left alone; so is one that says `become` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
# They act on the control node, or look at what anybody may look at.
WITHOUT_ROOT = {
    *(
        "add_host",
        "assert",
        "debug",
        "fail",
        "group_by",
        "include_role",
        "include_tasks",
        "import_role",
        "import_tasks",
    ),
    *(
        "meta",
        "pause",
        "ping",
        "set_fact",
        "set_stats",
        "wait_for",
        "broker_reach_info",
        "zookeeper_health",
        "zookeeper_quorum_info",
    ),
}
KEYWORDS = {
    *(
        "always",
        "any_errors_fatal",
        "args",
        "async",
        "become",
        "become_user",
        "block",
        "changed_when",
        "check_mode",
    ),
    *(
        "collections",
        "delay",
        "delegate_facts",
        "delegate_to",
        "diff",
        "environment",
        "failed_when",
        "ignore_errors",
    ),
    *(
        "ignore_unreachable",
        "listen",
        "loop",
        "loop_control",
        "module_defaults",
        "name",
        "no_log",
        "notify",
        "poll",
    ),
    *("register", "rescue", "retries", "run_once", "tags", "throttle", "timeout", "until", "vars", "when"),
}
LOCAL = ("localhost", "127.0.0.1", "::1")


def tasks_in(node: yaml.Node) -> Iterator[dict[str, yaml.Node]]:
    """The tasks in a file's list of tasks, those in blocks too, by keyword."""
    if not isinstance(node, yaml.SequenceNode):
        return
    for entry in node.value:
        task = {str(key.value): value for key, value in entry.value}
        if "block" not in task:
            yield task
        for part in ("block", "rescue", "always"):
            if part in task:
                yield from tasks_in(task[part])


def lacks_become(task: dict[str, yaml.Node]) -> bool:
    """Whether a task acts on a host and does not say as whom."""
    modules = {key.rpartition(".")[2] for key in task if key not in KEYWORDS}
    is_local = str(getattr(task.get("delegate_to"), "value", "")) in LOCAL
    return "become" not in task and not is_local and not modules <= WITHOUT_ROOT


def lacking(text: str) -> list[tuple[str, int, int]]:
    """The name of each such task, the line after its name, and the column of its keywords."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    found = [task["name"] for task in tasks_in(node) if lacks_become(task)] if node else []
    # The mark after a folded name is at the start of the next line.
    return [
        (name.value, name.end_mark.line + bool(name.end_mark.column), name.start_mark.column - len("name: "))
        for name in found
    ]


def amended(text: str) -> str:
    """The text with `become: true` after the name of each such task."""
    lines = text.splitlines(keepends=True)
    for _, line, column in reversed(lacking(text)):
        lines.insert(line, f"{' ' * column}become: true\n")
    return "".join(lines)


def files() -> list[Path]:
    """The files of tasks and of handlers of all roles."""
    return sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("roles/*/handlers/*.yml")])


def main() -> None:
    wrong = {path: lacking(path.read_text()) for path in files()}
    if "--check" in sys.argv[1:]:
        named = [f"{path.relative_to(ROOT)}: {name}" for path, found in wrong.items() for name, _, _ in found]
        if named:
            raise SystemExit("task_become: no become: " + "; ".join(named) + ": run `make fmt`")
        return
    for path in (each for each, found in wrong.items() if found):
        path.write_text(amended(path.read_text()))
        click.echo(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
