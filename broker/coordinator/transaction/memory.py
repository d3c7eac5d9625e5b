"""The memory that all transactional ids on this broker use, and its limit ``landline.transaction.max.bytes``."""

from __future__ import annotations

from typing import Final

import structlog

from broker.coordinator.common.memory import HeldMemory

_log = structlog.get_logger(__name__)
MAX_NAME: Final = 256
"""How much of a transactional id a log line shows."""


class TransactionMemory(HeldMemory):
    """The memory of all transactional ids. What is loaded from the log counts, but is never refused."""

    def tell_refusal(self, transactional_id: str) -> None:
        """Logs that a request had no room, at most one line a second. Called with no lock held."""
        left_out = self._lines.left_out()
        if left_out is not None:
            _log.warning(
                "transaction_memory_full",
                transactional_id=transactional_id[:MAX_NAME],
                held=self._held,
                most=self._most,
                left_out=left_out,
                setting="landline.transaction.max.bytes",
                do="find who makes so many transactional ids (kafka-transactions.sh list), or raise it",
            )
