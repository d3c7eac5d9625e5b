"""What is wrong with a configuration, said in full: every problem at once, each with its key, line and
nearest name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with a configuration. ``line`` counts from 1 in the properties file; None for
    an override or a default.
    """

    key: str
    line: int | None
    message: str


class ConfigError(Exception):
    """A configuration that must not be used. ``problems`` has them all; ``str()`` is one line for each.

    ``source`` names the file, or is empty.
    """

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = list(problems)
        self.source = source
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: Problem) -> str:
        where = self.source or "configuration"
        if problem.line is not None:
            where = f"{where}:{problem.line}"
        return f"{where}: {problem.key}: {problem.message}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``, if any is alike."""
    import difflib  # late: only a wrong name pays for it

    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to put behind a complaint about ``name``; empty when nothing is alike."""
    other = nearest(name, known)
    return f" Did you mean {other}?" if other else ""
