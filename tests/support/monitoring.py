"""The alert rules and the dashboard as the role `prometheus` ships them, and Debian's programs to run them with."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from rig.brokers import HOST
from rig.ports import free_port
from rig.processes import ManagedProcess

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


class Prometheus:
    """Debian's Prometheus on loopback, which scrapes every half second. A context manager."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._config = directory / "prometheus.yml"
        self._url = f"http://{HOST}:{free_port(HOST)}"
        command = [
            str(programs / "prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={self._url.removeprefix('http://')}",
        ]
        self._process = ManagedProcess("Prometheus", lambda: command, directory / "prometheus.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def scrape(self, job: str, targets: Sequence[str]) -> None:
        """Starts it, with these targets and the rules."""
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
        }
        self._config.write_text(yaml.safe_dump(config))
        self._process.start()
        self._process.wait_ready(self._is_ready, 60)

    def finds(self, query: str) -> bool:
        """Whether a query of the dashboard has a result now. Raises HTTPError for one that it does not understand."""
        label_values = re.fullmatch(r"label_values\((.*), \w+\)", query)
        bare = label_values[1] if label_values else query
        for variable, value in (("$job", "landline"), ("$instance", ".*"), ("$__rate_interval", "30s")):
            bare = bare.replace(variable, value)
        with urlopen(f"{self._url}/api/v1/query?{urlencode({'query': bare})}", timeout=10) as response:
            return bool(json.load(response)["data"]["result"])

    def _is_ready(self) -> bool:
        with suppress(OSError), urlopen(f"{self._url}/-/ready", timeout=5) as response:
            return bool(response.status == 200)
        return False
