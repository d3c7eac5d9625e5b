"""The alert rules and the dashboard as the role `prometheus` ships them, and Debian's programs to run them with."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = REPOSITORY / "roles" / "prometheus" / "files"
RULES = FILES / "landline.rules.yml"
RULE_TESTS = REPOSITORY / "tests" / "data" / "prometheus" / "landline.rules.test.yml"
DASHBOARD = FILES / "landline-dashboard.json"
# A metric of Landline's, or one that every Python or Go process has.
_METRIC = re.compile(r"\b(?:kafka|landline|process)_\w+|\bup\b")


def alerts() -> list[dict[str, Any]]:
    """The rules, in order."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """The dashboard's queries, with the title of their panel."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names, without label names and the suffixes of a histogram."""
    bare = re.sub(r'"[^"]*"|\b(?:by|on|without) \([^)]*\)', "", expression)
    return {
        re.sub(r"_(?:bucket|sum|count)$", "", name) if "totaltimems" in name else name
        for name in _METRIC.findall(bare)
    }


def documented_metrics() -> set[str]:
    """The metrics in docs/metrics.md, which a test compares with a running broker."""
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    return set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def prometheus_programs() -> Path:
    """The directory with Debian's `prometheus` and `promtool`."""
    directory = REPOSITORY / "build" / "prometheus"
    done = subprocess.run(
        [str(REPOSITORY / "tools" / "prometheus-programs"), str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return directory
