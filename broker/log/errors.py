"""Errors that make log directories unusable, for the operator at start-up."""

from __future__ import annotations


class LogDirError(Exception):
    """A log directory is not usable. The message says which one, why, and what to do."""


class LogDirUnusableError(LogDirError):
    """The disk prevents use of this directory; another directory may still serve."""


class LoadCancelled(Exception):
    """Loading or recovery was cancelled; the work done so far is kept."""
