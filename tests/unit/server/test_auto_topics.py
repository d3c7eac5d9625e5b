"""Topics that clients make by asking for them, and how fast."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.server.auto_topics import AutoTopicCreation
from broker.server.metadata_cache import MetadataCache


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def auto_topics(clock: Clock, rate: int) -> AutoTopicCreation:
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": "z:2181", "broker.id": "1", "landline.auto.create.topics.per.second": str(rate)}
    )

    def never(_work: Callable[[], None]) -> bool:
        return True

    return AutoTopicCreation(config, MetadataCache("PLAINTEXT"), None, never, clock)  # type: ignore[arg-type]


def test_a_second_makes_so_many_topics_and_the_next_goes_on() -> None:
    clock = Clock()
    made = auto_topics(clock, 10)
    names = [f"t{number}" for number in range(25)]
    made.ensure(names)
    assert len(made._wanted) == 10
    made.ensure(names)
    assert len(made._wanted) == 10
    clock.now_s += 1
    made.ensure(names)
    assert len(made._wanted) == 20
    clock.now_s += 100
    made.ensure(names)
    assert set(made._wanted) == set(names)


def test_who_asks_again_for_the_same_topic_uses_up_nothing() -> None:
    made = auto_topics(Clock(), 2)
    for _ in range(10):
        made.ensure(["a"])
    made.ensure(["b"])
    assert set(made._wanted) == {"a", "b"}
