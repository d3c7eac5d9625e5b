"""Maps the error of a failed append to __transaction_state to the client's error, as Kafka 3.9 does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.coordinator.group.append_errors import COORDINATION
from broker.protocol.errors import Errors

_TRANSACTION: Final[Mapping[Errors, Errors]] = {
    **COORDINATION,
    Errors.REQUEST_TIMED_OUT: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.MESSAGE_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
    Errors.RECORD_LIST_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
}


def store_error(error: Errors) -> Errors:
    return _TRANSACTION.get(error, error)
