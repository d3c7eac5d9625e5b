"""What a client hears of a partition that this broker does not have."""

from types import SimpleNamespace

import pytest

from broker.protocol.errors import Errors, KafkaError
from broker.server.apis.context import why_absent
from broker.utils.topic_partition import TopicPartition

TP = TopicPartition("t", 0)


def context(here: Errors, *, known: bool) -> SimpleNamespace:
    return SimpleNamespace(
        replica_manager=SimpleNamespace(absence=lambda _partition: KafkaError(here)),
        metadata_cache=SimpleNamespace(contains_partition=lambda _partition: known),
    )


@pytest.mark.parametrize(
    ("here", "known", "told"),
    [
        (Errors.KAFKA_STORAGE_ERROR, True, Errors.KAFKA_STORAGE_ERROR),
        (Errors.KAFKA_STORAGE_ERROR, False, Errors.KAFKA_STORAGE_ERROR),
        (Errors.NOT_LEADER_OR_FOLLOWER, True, Errors.NOT_LEADER_OR_FOLLOWER),
        (Errors.NOT_LEADER_OR_FOLLOWER, False, Errors.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_who_asks_in_the_wrong_place_is_sent_elsewhere_if_the_cluster_has_the_partition(here, known, told):
    assert why_absent(TP, context(here, known=known)) is told
