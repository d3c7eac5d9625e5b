"""The circumstances of a comparison, its machine and software versions: ``manifest.json``."""

from __future__ import annotations

import json
import os
import platform
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from compare.hosts import Hosts
from compare.scenarios import Planned
from compare.settings import OUTAGE_S, PATIENCE_S
from lab.shell import run

ROOT = Path(__file__).parents[1]


def begun(comparison_id: str, plan: Sequence[Planned], hosts: Hosts, remark: str) -> dict[str, Any]:
    """The manifest at the start of the comparison; ``remark``: what else a reader should know."""
    return {
        "comparison_id": comparison_id,
        "hosts": max(planned.hosts for planned in plan),
        "rounds": max(planned.round for planned in plan),
        "scenarios": sorted({str(planned.scenario) for planned in plan}),
        "systems": sorted({str(planned.system) for planned in plan}),
        "models": sorted({str(planned.model) for planned in plan}),
        "runs": len(plan),
        "remark": remark,
        "patience_s": PATIENCE_S,
        "outage_s": OUTAGE_S,
        "revision": revision(),
        "machine": {
            "cores": os.cpu_count(),
            "memory_mb": psutil.virtual_memory().total >> 20,
            "processor": processor(),
        },
        "versions": _versions(hosts),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "ended": None,
        "failed_runs": [],
    }


def write(path: Path, manifest: dict[str, Any]) -> None:
    """Replaces the file atomically. Raises OSError."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def ended(manifest: dict[str, Any], failed_runs: Sequence[str]) -> dict[str, Any]:
    """The manifest at the end of the comparison."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**manifest, "ended": now, "failed_runs": list(failed_runs)}


def revision() -> str:
    """The work tree's commit, with a plus if it has changes; empty outside of git."""
    head = run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False)
    changes = run(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"], check=False)
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "") if head.returncode == 0 else ""


def _versions(hosts: Hosts) -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    query = [
        "dpkg-query",
        "--show",
        "--showformat=${Package} ${Version}\\n",
        "zookeeper",
        "openjdk-17-jre-headless",
    ]
    packages = hosts.lab.run_on_console(hosts.names[0], query, check=False).stdout
    return {
        "landline": project["version"],
        "pyspark": metadata.version("pyspark"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        **dict(line.split(" ", 1) for line in packages.splitlines() if " " in line),
    }


def processor() -> str:
    """The name of the machine's processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
