"""The release that comes after this checkout's, for tests that roll there and back: with another format of a file."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.support.deploying import ROOT, make
from tools.release import project_version

VERSION = project_version(ROOT)
NEXT = "99.0.0"
# It writes the other format when inter.broker.protocol.version says so.
PLANTED = {
    "broker/log/checkpoints.py": ("if version != VERSION:", "if version not in (0, 1):"),
    "broker/config/cross_checks.py": (
        "    if not _OLDEST_PROTOCOL <= version",
        """    import broker.log.checkpoints as planted
    planted.VERSION = 1 if get(key) == "3.9-IV1" else 0
    if not _OLDEST_PROTOCOL <= version""",
    ),
}
OLDER_FORMAT = {
    "log.initial.task.delay.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
}
NEWER_FORMAT = {**OLDER_FORMAT, "inter.broker.protocol.version": "3.9-IV1"}


def make_both_releases(out: Path, checkout: Path) -> None:
    """Makes the archives of this checkout's release and of the next one, made in `checkout`, a new directory."""
    arguments = f"--out {out} --platform cp311-{platform.machine()} --allow-dirty"
    make("release", f"RELEASE_ARGS={arguments}")
    subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
    numbers = dict.fromkeys(("pyproject.toml", "broker/__init__.py"), (f'"{VERSION}"', f'"{NEXT}"'))
    for file, (old, new) in {**numbers, **PLANTED}.items():
        path = checkout / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    # Pure Python, so that compiled code and Python read what the other has written.
    subprocess.run(
        [sys.executable, "-m", "tools.release", "--pure", *arguments.split()],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=True,
    )
