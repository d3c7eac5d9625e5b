"""Topics that clients make by asking for them, and how fast."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.protocol.errors import Errors, KafkaError
from broker.server.auto_topics import AutoTopicCreation
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import TRANSACTION_STATE_TOPIC
from tests.support.clocks import ManualTime


def auto_topics(clock: ManualTime[float], rate: int) -> AutoTopicCreation:
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": "z:2181", "broker.id": "1", "landline.auto.create.topics.per.second": str(rate)}
    )

    def never(_work: Callable[[], None]) -> bool:
        return True

    return AutoTopicCreation(config, MetadataCache("PLAINTEXT"), None, never, clock)  # type: ignore[arg-type]


def test_a_second_makes_so_many_topics_and_the_next_goes_on() -> None:
    clock = ManualTime(10.0)
    made = auto_topics(clock, 10)
    names = [f"t{number}" for number in range(25)]
    made.ensure(names)
    assert len(made._wanted) == 10
    made.ensure(names)
    assert len(made._wanted) == 10
    clock.now += 1
    made.ensure(names)
    assert len(made._wanted) == 20
    clock.now += 100
    made.ensure(names)
    assert set(made._wanted) == set(names)


def test_who_asks_again_for_the_same_topic_uses_up_nothing() -> None:
    made = auto_topics(ManualTime(10.0), 2)
    for _ in range(10):
        made.ensure(["a"])
    made.ensure(["b"])
    assert set(made._wanted) == {"a", "b"}


def test_topics_above_the_clients_quota_are_not_requested_until_it_allows_them() -> None:
    made = auto_topics(ManualTime(10.0), 10)
    left, spent = [2], []

    def spend(partitions: int) -> None:
        if not left[0]:
            raise KafkaError(Errors.THROTTLING_QUOTA_EXCEEDED)
        left[0] -= 1
        spent.append(partitions)

    made.ensure(["a", "b", "c"], spend)
    made.ensure(["a", "b"], spend)
    assert set(made._wanted) == {"a", "b"}
    assert spent == [1, 1]
    left[0] = 1
    made.ensure(["a", "b", "c"], spend)
    assert set(made._wanted) == {"a", "b", "c"}


def test_the_topic_of_transactions_is_made_with_kafkas_configs() -> None:
    made = auto_topics(ManualTime(10.0), 10)
    made.ensure_internal(TRANSACTION_STATE_TOPIC)
    wish = made._wanted[TRANSACTION_STATE_TOPIC]
    assert (wish["num_partitions"], wish["replication_factor"]) == (50, 1)
    assert {config["name"]: config["value"] for config in wish["configs"]} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
