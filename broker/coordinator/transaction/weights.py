"""The memory of transactional ids in this process, in bytes. The constants are measured, with some reserve."""

from __future__ import annotations

from typing import Final

from broker.coordinator.common.weights import text_weight
from broker.coordinator.transaction.partitions import Partitions

_TRANSACTION: Final = 500
_TOPIC: Final = 420
_PARTITION: Final = 64


def transaction_weight(transactional_id: str, partitions: Partitions) -> int:
    weight = _TRANSACTION + text_weight(transactional_id)
    for topic, numbers in partitions.items():
        weight += _TOPIC + text_weight(topic) + _PARTITION * len(numbers)
    return weight
