"""The changelog's form: releases by number and date, their changes by kind, and the package's version
among them.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path

import broker

ROOT = Path(__file__).resolve().parents[3]
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
_, *SECTIONS = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
UNRELEASED, *RELEASES = SECTIONS


def heading(section: str) -> str:
    return section.split("\n", maxsplit=1)[0]


def test_what_is_not_released_comes_first_and_releases_by_number_and_day() -> None:
    assert heading(UNRELEASED) == "Unreleased"
    found = [
        re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)", heading(section)) for section in RELEASES
    ]
    assert found
    assert all(found)
    releases = [
        (tuple(map(int, match.groups()[:3])), date.fromisoformat(match[4])) for match in found if match
    ]
    assert releases == sorted(releases, reverse=True)


def test_the_package_has_the_number_of_the_newest_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == broker.__version__ == heading(RELEASES[0]).split(" ")[0]


def test_changes_stand_by_their_kind_each_kind_once() -> None:
    for section in SECTIONS:
        kinds = re.findall(r"^### (.+)$", section, flags=re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds], heading(section)
        parts = re.split(r"^### .+$", section, flags=re.MULTILINE)[1:]
        assert all("\n- " in part for part in parts), heading(section)
