"""Moves of the partition ``t-0`` between the log directories of a broker, by raw requests."""

from __future__ import annotations

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.raw_client import RawClient


def places(client: RawClient) -> dict[str, tuple[bool, int]]:
    """The directories that have the partition: whether as a future one, and its lag."""
    found = {}
    wanted = {"topics": [{"topic": "t", "partitions": [0]}]}
    for row in client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, wanted).results:
        for topic in row.topics:
            (partition,) = topic.partitions
            found[row.log_dir] = (partition.is_future_key, partition.offset_lag)
    return found


def ask_to_move(client: RawClient, path: str) -> None:
    """Asks for a move to the log directory at ``path``."""
    wanted = {"dirs": [{"path": path, "topics": [{"name": "t", "partitions": [0]}]}]}
    (topic,) = client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, wanted).results
    assert topic.partitions[0].error_code == Errors.NONE


def throttle(client: RawClient, broker_id: int, rate: int) -> None:
    """Limits the broker's moves to ``rate`` bytes a second."""
    config = {
        "name": "replica.alter.log.dirs.io.max.bytes.per.second",
        "config_operation": 0,
        "value": str(rate),
    }
    resource = {"resource_type": 4, "resource_name": str(broker_id), "configs": [config]}
    answer = client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
    )
    assert answer.responses[0].error_code == Errors.NONE, answer
