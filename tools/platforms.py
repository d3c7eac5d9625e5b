"""Deploys to each system that the lab can make hosts of, and keeps what was seen: ``make platforms``.

    python -m tools.platforms run [--only trixie]   a cluster of three hosts each
    python -m tools.platforms table                 writes README's table from docs/platforms.json

Each cluster is deployed to, passes the smoke checks, and a second deploy changes nothing. A run that passed
replaces its platform's entry in docs/platforms.json. README's table has these entries and nothing else.
`tests/unit/house/test_platforms.py` holds README to it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from tools.release import project_version
from tools.wheelhouse import ROOT, replace

RESULTS: Final = ROOT / "docs" / "platforms.json"
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- the table of docs/platforms.json: begin -->"
END: Final = "<!-- the table of docs/platforms.json: end -->"
HOSTS: Final = 3
_PASSED: Final = re.compile(r"^(\d+) passed", re.MULTILINE)
_CHANGED: Final = re.compile(r"^\S+ +: ok=\d+ +changed=(\d+) +unreachable=0 +failed=0", re.MULTILINE)
# What a host says of itself, one line each.
_SAID: Final = ("system", "system_version", "machine", "python", "java", "zookeeper", "systemd")
_ASK: Final = """
. /etc/os-release; echo "$NAME" | cut -d' ' -f1; echo "$VERSION_ID"; uname -m
/opt/landline/current/venv/bin/python -c 'import platform; print(platform.python_version())'
java -version 2>&1 | sed -n 's/.*"\\(.*\\)".*/\\1/p'
echo srvr | nc -q 1 127.0.0.1 2181 | sed -n 's/^Zookeeper version: \\([0-9.]*\\).*/\\1/p'
systemctl --version | sed -n 's/^systemd \\([0-9]*\\).*/\\1/p'
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run saw."""

    system: str
    system_version: str
    machine: str
    python: str
    java: str
    zookeeper: str
    systemd: str
    zookeeper_install: str
    landline: str
    smoke: int
    date: str


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """README's table, with its paragraph."""
    lines = [
        "| hosts | machine | Python | Java | ZooKeeper | systemd | deployed, smoke passed |",
        "|---|---|---|---|---|---|---|",
    ]
    for _, raw in sorted(results.items()):
        one = Seen(**raw)
        came = "its package" if one.zookeeper_install == "package" else "its archive"
        lines.append(
            f"| {one.system} {one.system_version} | {one.machine} | {one.python} | {one.java} "
            f"| {one.zookeeper}, {came} | {one.systemd} | {one.date}, Landline {one.landline}, {one.smoke} checks |"
        )
    return "\n".join(lines)


def with_table(readme: str, content: str) -> str:
    """README with this table in its place."""
    before, _, rest = readme.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"platforms: README.md has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def deploys(archive: Path | None) -> str:
    """Ansible's arguments that install ZooKeeper from an archive; none: from the package."""
    if archive is None:
        return ""
    checksum = hashlib.sha512(archive.read_bytes()).hexdigest()
    given = {
        "zookeeper_install": "archive",
        "zookeeper_archive": str(archive.resolve()),
        "zookeeper_archive_checksum": f"sha512:{checksum}",
    }
    return " ".join(f"-e {key}={value}" for key, value in given.items())


def run(suite: str, archive: Path | None) -> Seen:
    """Makes a cluster of hosts of that suite, checks it, and destroys it. `SystemExit` if anything fails."""
    install = "archive" if archive else "package"
    lab = f"platform-{suite}-{install}"
    arguments = [f"LAB={lab}", f"ANSIBLE_ARGS={deploys(archive)}"]
    try:
        up = _make("cluster-up", f"IMAGE={suite}", f"HOSTS={HOSTS}", *arguments)
        again = _make("deploy", *arguments[:1], f"{arguments[1]} --check")
        if _CHANGED.findall(again) != ["0"] * HOSTS:
            raise SystemExit(f"platforms: a second deploy on {suite} would change something")
        asked = [sys.executable, "-m", "lab", "exec", lab, "h1", "--", "sh", "-c", _ASK]
        said = subprocess.run(asked, cwd=ROOT, check=True, text=True, capture_output=True).stdout.split("\n")
    finally:
        _make("cluster-down", f"LAB={lab}")
    return Seen(
        **dict(zip(_SAID, said, strict=False)),
        zookeeper_install=install,
        landline=project_version(ROOT),
        smoke=int(_PASSED.findall(up)[-1]),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
    )


def _make(*arguments: str) -> str:
    """Runs make, shows what it prints, and returns it. `SystemExit` if it fails."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "LANDLINE_LAB"}
    }
    with subprocess.Popen(
        ["make", *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            click.echo(line, nl=False)
            lines.append(line)
    if process.returncode:
        raise SystemExit(f"platforms: make {arguments[0]} failed with {process.returncode}")
    return "".join(lines)


def results() -> dict[str, dict[str, Any]]:
    """What is kept, by suite and how ZooKeeper came."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    return found


def keep(suite: str, seen: Seen) -> None:
    """Keeps what a run saw, in docs/platforms.json and in README."""
    found = results()
    found[f"{suite} {platform.machine()} {seen.zookeeper_install}"] = asdict(seen)
    replace(RESULTS, (json.dumps(found, indent=2, sort_keys=True) + "\n").encode())
    write_table()


def write_table() -> None:
    """Writes the table of what is kept into README."""
    replace(README, with_table(README.read_text(), table(results())).encode())


@click.group()
def main() -> None:
    """Deploy to each system that the lab can make hosts of."""


@main.command("run")
@click.option("--only", "suites", multiple=True, default=("bookworm", "trixie"), help="Only this suite.")
@click.option(
    "--zookeeper-archive", type=click.Path(path_type=Path, exists=True), help="Install ZooKeeper from this."
)
def run_command(suites: Iterable[str], zookeeper_archive: Path | None) -> None:
    """Deploy, check, and keep what was seen."""
    for suite in suites:
        keep(suite, run(suite, zookeeper_archive))


@main.command("table")
def table_command() -> None:
    """Write README's table from docs/platforms.json."""
    write_table()


if __name__ == "__main__":
    main()
