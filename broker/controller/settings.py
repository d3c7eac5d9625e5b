"""The broker configuration that the controller uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.config.broker_config import BrokerConfig
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

ELIGIBLE_REPLICAS = "landline.eligible.leader.replicas.enable"
RAISE_INTERNAL_TOPICS = "landline.internal.topics.raise.replication.enable"
REJOIN_DELAY_MS = 1000
FIRST_IMBALANCE_CHECK_MS = 5000
INTERNAL_TOPICS_DELAY_MS = 5000


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The controller's settings, taken from Kafka's config keys. ``controller_listener`` is by which it reaches
    brokers; empty: the inter-broker listener. ``rejoin_delay_ms`` is how long preferred
    elections are collected after replicas rejoin the ISR. ``internal_topics_delay_ms`` is how long joining
    brokers are collected.
    """

    broker_id: int
    inter_broker_listener: str
    controller_listener: str = ""
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    imbalance_check_interval_ms: int = 300_000
    imbalance_per_broker_percentage: int = 10
    unclean_leader_election_enable: bool = False
    eligible_replicas: bool = False
    min_insync_replicas: int = 1
    rejoin_delay_ms: int = REJOIN_DELAY_MS
    first_imbalance_check_ms: int = FIRST_IMBALANCE_CHECK_MS
    raise_internal_topics: bool = True
    internal_topic_factors: Mapping[str, int] = field(default_factory=dict)
    internal_topics_delay_ms: int = INTERNAL_TOPICS_DELAY_MS

    @classmethod
    def of(cls, config: BrokerConfig, broker_id: int) -> ControllerSettings:
        return cls(
            broker_id=broker_id,
            inter_broker_listener=config.inter_broker_listener_name,
            controller_listener=config.controller_listener_name,
            delete_topic_enable=config.bool("delete.topic.enable"),
            auto_leader_rebalance_enable=config.bool("auto.leader.rebalance.enable"),
            imbalance_check_interval_ms=config.int("leader.imbalance.check.interval.seconds") * 1000,
            imbalance_per_broker_percentage=config.int("leader.imbalance.per.broker.percentage"),
            unclean_leader_election_enable=config.bool("unclean.leader.election.enable"),
            eligible_replicas=config.bool(ELIGIBLE_REPLICAS),
            min_insync_replicas=config.int("min.insync.replicas"),
            raise_internal_topics=config.bool(RAISE_INTERNAL_TOPICS),
            internal_topic_factors={
                GROUP_METADATA_TOPIC: config.int("offsets.topic.replication.factor"),
                TRANSACTION_STATE_TOPIC: config.int("transaction.state.log.replication.factor"),
            },
        )
