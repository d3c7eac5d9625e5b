"""How an action on the Spark cluster can end other than well. ``fabfile`` turns each into its exit code."""

from __future__ import annotations


class NothingToDo(Exception):
    """The cluster already is as asked: told to the caller, and no failure (exit code 0)."""


class UsageError(Exception):
    """The caller asked for something that cannot be, and nothing was touched (exit code 2)."""


class Error(Exception):
    """The action failed; the message names each host that did not do its part (exit code 1)."""
