"""What compiled loops call so that other threads have a turn (``tools/compiled/give_way.py``). Never compiled."""

from __future__ import annotations


def turn() -> None:
    """Does nothing. The interpreter, when it begins this, gives itself to a thread that waits for it."""
