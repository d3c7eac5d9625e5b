"""Verification of transactions over one real partition that this broker leads."""

from __future__ import annotations

from pathlib import Path

from broker.replication.transaction_verification import TransactionVerification, VerificationSender
from tests.support.logs import open_log, partition_of


def verification_over(directory: Path, sender: VerificationSender) -> TransactionVerification:
    """Every partition that is asked for is this one."""
    partition = partition_of(open_log(directory), leads=True)
    return TransactionVerification(lambda _name: partition, sender, lambda: True)
