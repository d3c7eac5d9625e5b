"""Maps the error of a failed append to __consumer_offsets to the client's error, as Kafka 3.9 does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.protocol.errors import Errors

COORDINATION: Final[Mapping[Errors, Errors]] = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_LEADER_OR_FOLLOWER: Errors.NOT_COORDINATOR,
    Errors.KAFKA_STORAGE_ERROR: Errors.NOT_COORDINATOR,
}
_GROUP: Final[Mapping[Errors, Errors]] = {
    **COORDINATION,
    Errors.REQUEST_TIMED_OUT: Errors.REBALANCE_IN_PROGRESS,
    Errors.MESSAGE_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
    Errors.RECORD_LIST_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
    Errors.INVALID_FETCH_SIZE: Errors.UNKNOWN_SERVER_ERROR,
}
_COMMIT: Final[Mapping[Errors, Errors]] = {
    **COORDINATION,
    Errors.MESSAGE_TOO_LARGE: Errors.INVALID_COMMIT_OFFSET_SIZE,
    Errors.RECORD_LIST_TOO_LARGE: Errors.INVALID_COMMIT_OFFSET_SIZE,
    Errors.INVALID_FETCH_SIZE: Errors.INVALID_COMMIT_OFFSET_SIZE,
}


def store_error(error: Errors) -> Errors:
    """The error for a group's metadata: JoinGroup and SyncGroup."""
    return _GROUP.get(error, error)


def verification_error(error: Errors) -> Errors:
    """The error for a TxnOffsetCommit whose transaction could not be verified."""
    if error is Errors.NETWORK_EXCEPTION:
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return commit_error(error)


def commit_error(error: Errors) -> Errors:
    """The error for OffsetCommit."""
    return _COMMIT.get(error, error)
