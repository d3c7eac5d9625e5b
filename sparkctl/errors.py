"""The ways in which an action on the Spark cluster can fail or be refused. ``fabfile`` maps each to its
exit code.
"""

from __future__ import annotations


class NothingToDo(Exception):
    """The cluster is already in the requested state. This is reported, but is not a failure (exit code 0)."""


class UsageError(Exception):
    """The request is invalid, and nothing was changed (exit code 2)."""


class Error(Exception):
    """The action failed. The message names each host that failed (exit code 1)."""
