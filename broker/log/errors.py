"""Why log directories cannot be used: for the operator, at start."""

from __future__ import annotations


class LogDirError(Exception):
    """A data directory is not usable. The message says which, why, and what to do."""


class LogDirUnusableError(LogDirError):
    """Its disk does not let this directory be used; another one may still serve."""


class LoadCancelled(Exception):
    """Loading or recovery was told to stop; what was done so far is kept."""
