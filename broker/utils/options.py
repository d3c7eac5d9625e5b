"""The parsed command-line options of a command."""

from __future__ import annotations

from typing import Any, Protocol


class Options(Protocol):
    """argparse's Namespace as a type, without importing argparse."""

    def __getattr__(self, name: str) -> Any: ...
