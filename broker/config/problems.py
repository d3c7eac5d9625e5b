"""The problems of a configuration, reported all at once, each with its key, line and the nearest
known name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """A problem of a configuration. ``line`` counts from 1 in the properties file; None for an override or
    a default.
    """

    key: str
    line: int | None
    message: str


class ConfigError(Exception):
    """An invalid configuration. ``problems`` has all problems; ``str()`` has one line for each.

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
    """The known name that is most similar to ``name``, if any is similar."""
    import difflib  # imported late: needed only for a wrong name

    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to append to a message about ``name``; empty if no known name is similar."""
    other = nearest(name, known)
    return f" Did you mean {other}?" if other else ""
