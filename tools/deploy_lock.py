"""Writes requirements-deploy.lock, the part of requirements.lock that deploying to hosts needs.

    python -m tools.deploy_lock     after each change of requirements.lock

With it, `make setup` makes an environment for `make deploy`, `release`, `smoke`, `status` and the other verbs for
an operator's own hosts: without Spark, pandas, linters and the tests' tools. `tests/unit/house` has a test
that holds the file to requirements.lock.
"""

from __future__ import annotations

import tomllib
from typing import Final

from packaging.requirements import Requirement

from tools.wheelhouse import ROOT, SHIPPER_CLIENT, replace, requirements_of

LOCK: Final = ROOT / "requirements-deploy.lock"
# Beside the broker's own dependencies, of which archives are made.
NEEDED: Final = (
    "ansible-core",
    "click",
    "confluent-kafka",
    "cyclonedx-python-lib",
    "fabric",
    "hatchling",
    "packaging",
    "psutil",
    "pytest",
    "pytest-testinfra",
    "pytest-timeout",
    "pytest-xdist",
    "rich",
    "uv",
    SHIPPER_CLIENT,
)
_HEAD: Final = "# What deploying needs of requirements.lock. Written by: python -m tools.deploy_lock\n"


def content() -> str:
    """What the file should have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(line).name for line in project["dependencies"]} | set(NEEDED)
    return _HEAD + requirements_of(names, (ROOT / "requirements.lock").read_text())


if __name__ == "__main__":
    replace(LOCK, content().encode())
