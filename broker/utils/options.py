"""What a command was told on its command line."""

from __future__ import annotations

from typing import Any, Protocol


class Options(Protocol):
    """argparse's Namespace, without the library, which only who needs it loads."""

    def __getattr__(self, name: str) -> Any: ...
