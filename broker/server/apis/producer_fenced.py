"""PRODUCER_FENCED for clients that do not know it yet: each API has it from some version on (KIP-588)."""

from __future__ import annotations

from broker.protocol.errors import Errors


def answered(error: Errors, version: int, known_from: int) -> Errors:
    """The error for a client's version. Older ones know only INVALID_PRODUCER_EPOCH."""
    if error is Errors.PRODUCER_FENCED and version < known_from:
        return Errors.INVALID_PRODUCER_EPOCH
    return error
