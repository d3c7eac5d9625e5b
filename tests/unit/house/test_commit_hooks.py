"""The hooks before a commit (.pre-commit-config.yaml) run the checks of `make lint`, from .venv, on the
whole checkout.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
REPOS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
HOOKS = [hook for repo in REPOS for hook in repo["hooks"]]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]


def test_nothing_is_fetched_for_a_hook() -> None:
    assert [repo["repo"] for repo in REPOS] == ["local"]
    assert {hook["language"] for hook in HOOKS} == {"system"}


def test_the_hooks_are_the_python_part_of_make_lint() -> None:
    recipe = re.search(r"^lint-python:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    commands = [line.strip("\t@") for line in recipe[1].splitlines()]
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in HOOKS]
    assert [entry.split()[0] for entry in entries] == ["ruff", "ruff", "mypy", "lint-imports"]
    for entry in entries:
        assert any(command.split(" || ")[0].startswith(entry) for command in commands), entry


def test_each_hooks_program_is_locked_for_developers_and_there() -> None:
    for hook in HOOKS:
        program, *_ = shlex.split(hook["entry"])
        assert (ROOT / program).exists(), program
    names = {re.split(r"[<>=]", package)[0] for package in GROUPS["lint"]}
    assert {"pre-commit", "ruff", "mypy", "import-linter"} <= names
    assert "\npre-commit==" in (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_a_hook_looks_at_everything_once_python_or_its_settings_change() -> None:
    for hook in HOOKS:
        assert hook["pass_filenames"] is False
        for path, is_looked_at in {
            "broker/x.py": True,
            "pyproject.toml": True,
            "docs/design.md": False,
        }.items():
            assert bool(re.search(hook["files"], path)) is is_looked_at
