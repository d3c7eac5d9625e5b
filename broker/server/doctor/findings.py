"""What `landline doctor` says: findings, their text and JSON, and the exit code. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker import __version__


class Level(Enum):
    """How bad a finding is. Only FAIL makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``said`` says what was found, with the value. ``config`` names the key, with its file
    and line if known, and ``do`` says what to do; both are empty if the check is OK. None has a secret.
    """

    check: str
    level: Level
    said: str
    config: str = ""
    do: str = ""

    def __str__(self) -> str:
        config = f" ({self.config})" if self.config else ""
        return f"{self.said}{config}{f': {self.do}' if self.do else ''}"


Findings = list[Finding]

_COLOURS: Final = {Level.OK: "\033[32m", Level.WARN: "\033[33m", Level.FAIL: "\033[1;31m"}
_RESET: Final = "\033[0m"


def ok(check: str, said: str) -> Finding:
    return Finding(check, Level.OK, said)


def warn(check: str, said: str, *, config: str = "", do: str = "") -> Finding:
    return Finding(check, Level.WARN, said, config, do)


def fail(check: str, said: str, *, config: str = "", do: str) -> Finding:
    return Finding(check, Level.FAIL, said, config, do)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if anything failed, else 0."""
    return int(any(finding.level is Level.FAIL for finding in findings))


def first_to_do(findings: Sequence[Finding]) -> Finding | None:
    """The first failure, or else the first warning: checks are in the order in which one causes the next."""
    for level in (Level.FAIL, Level.WARN):
        for finding in findings:
            if finding.level is level:
                return finding
    return None


def as_text(findings: Sequence[Finding], *, colour: bool) -> str:
    """One line for each finding, and a last one that says what to do first."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        level = f"{finding.level.value:<4}"
        mark = f"{_COLOURS[finding.level]}{level}{_RESET}" if colour else level
        lines.append(f"{mark}  {finding.check:<{width}}  {_one_line(str(finding))}")
    return "\n".join([*lines, _last_line(findings)])


def _last_line(findings: Sequence[Finding]) -> str:
    first = first_to_do(findings)
    if first is None:
        return f"Nothing to do: {len(findings)} checks are ok."
    failed = sum(finding.level is Level.FAIL for finding in findings)
    warned = sum(finding.level is Level.WARN for finding in findings)
    return f"{failed} failed, {warned} to look at. First: {first.check}: {_one_line(first.do or first.said)}"


def _one_line(text: str) -> str:
    """The text on one line. What others said in it cannot steer the terminal."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


def as_json(findings: Sequence[Finding]) -> str:
    """An object with the findings, and the first one to act on."""
    first = first_to_do(findings)
    return json.dumps(
        {
            "version": __version__,
            "ok": exit_code(findings) == 0,
            "first": None if first is None else first.check,
            "checks": [
                {
                    "check": finding.check,
                    "level": finding.level.value,
                    "said": finding.said,
                    "config": finding.config,
                    "do": finding.do,
                }
                for finding in findings
            ],
        },
        indent=1,
    )
