"""Creates topics on demand: ``auto.create.topics.enable`` and the internal topics.
Kafka's AutoTopicCreationManager.

A CreateTopics request goes to the controller on a separate thread; the client is told to retry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from broker.config.broker_config import BrokerConfig
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError, ProtocolError
from broker.protocol.fields import Fields
from broker.protocol.responses import CreateTopicsResponse
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

_log = structlog.get_logger(__name__)
_VERSION = 7
_TIMEOUT_MS = 10_000


def _offsets_topic(config: BrokerConfig) -> tuple[int, int, dict[str, object]]:
    """Its partitions, replicas and configs."""
    configs: dict[str, object] = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": config.int("offsets.topic.segment.bytes"),
    }
    partitions = config.int("offsets.topic.num.partitions")
    return partitions, config.int("offsets.topic.replication.factor"), configs


def _transactions_topic(config: BrokerConfig) -> tuple[int, int, dict[str, object]]:
    configs: dict[str, object] = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": config.int("transaction.state.log.min.isr"),
        "segment.bytes": config.int("transaction.state.log.segment.bytes"),
        "unclean.leader.election.enable": "false",
    }
    partitions = config.int("transaction.state.log.num.partitions")
    return partitions, config.int("transaction.state.log.replication.factor"), configs


_INTERNAL: Final = {
    GROUP_METADATA_TOPIC: (_offsets_topic, "offsets.topic.replication.factor"),
    TRANSACTION_STATE_TOPIC: (_transactions_topic, "transaction.state.log.replication.factor"),
}


def _costs_nothing(_partitions: int) -> None:
    pass


class AutoTopicCreation:
    """Requests each topic once at a time; Kafka's AutoTopicCreationManager. Callers never block: ``submit``
    runs the request on another thread.
    """

    def __init__(
        self,
        config: BrokerConfig,
        cache: MetadataCache,
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        submit: Callable[[Callable[[], None]], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._cache = cache
        self._make_channel = make_channel
        self._submit = submit
        self._wanted: dict[str, Fields] = {}
        self._under_way: set[str] = set()
        self._busy = False
        self._rate = config.int("landline.auto.create.topics.per.second")
        self._clock_s = clock_s
        self._allowed = float(self._rate)  # topics that may be requested at once, at ``_allowed_at_s``
        self._allowed_at_s = clock_s()
        self._lock = threading.Lock()  # lock order 68

    @property
    def enabled(self) -> bool:
        return self._config.bool("auto.create.topics.enable")

    def ensure(self, topics: Iterable[str], spend: Callable[[int], None] = _costs_nothing) -> None:
        """Requests topics with the broker's defaults, as many as the rate allows. Clients retry for
        the others.

        ``spend`` is called with the number of partitions of each topic that is requested. It raises KafkaError
        if the client's quota is used up.
        """
        self._ask({topic: self._user_topic(topic) for topic in self._within_rate(topics, spend)})

    def ensure_internal(self, topic: str = GROUP_METADATA_TOPIC) -> None:
        """Requests an internal topic, with at most as many replicas as there are live brokers."""
        self._ask({topic: self._internal_topic(topic)})

    def _within_rate(self, topics: Iterable[str], spend: Callable[[int], None]) -> list[str]:
        within = []
        partitions = self._config.int("num.partitions")
        with self._lock:
            now_s = self._clock_s()
            allowed = self._allowed + (now_s - self._allowed_at_s) * self._rate
            self._allowed, self._allowed_at_s = min(allowed, float(self._rate)), now_s
            for topic in topics:
                if topic in self._under_way or topic in self._wanted:
                    continue
                if self._allowed < 1:
                    break
                try:
                    spend(partitions)
                except KafkaError:
                    break
                self._allowed -= 1
                within.append(topic)
        return within

    def _user_topic(self, topic: str) -> Fields:
        return {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [],
            "configs": [],
        }

    def _internal_topic(self, topic: str) -> Fields:
        settings, factor = _INTERNAL[topic]
        partitions, wanted, configs = settings(self._config)
        alive = max(len(self._cache.alive_broker_ids()), 1)
        if alive < wanted:
            _log.warning(
                "internal_topic_has_fewer_replicas",
                topic=topic,
                wanted=wanted,
                live_brokers=alive,
                config=factor,
                action="the controller adds replicas when brokers join",
            )
        return {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": min(wanted, alive),
            "assignments": [],
            "configs": [{"name": name, "value": str(value)} for name, value in configs.items()],
        }

    def _ask(self, topics: Mapping[str, Fields]) -> None:
        with self._lock:
            for topic, wish in topics.items():
                if topic not in self._under_way:
                    self._wanted[topic] = wish
            if not self._wanted or self._busy:
                return
            self._busy = True
        # Uses one thread at most: the request may come back to this broker and need another one.
        if not self._submit(self._work):
            with self._lock:
                self._busy = False

    def _work(self) -> None:
        while True:
            with self._lock:
                batch, self._wanted = self._wanted, {}
                self._under_way = set(batch)
                if not batch:
                    self._busy = False
                    return
            self._create(batch)

    def _create(self, topics: Mapping[str, Fields]) -> None:
        try:
            address = self._cache.controller_address()
            if address is None:
                return  # the client retries; there may be a controller by then
            channel = self._make_channel(address, "auto-topic-creation")
            try:
                fields = {"topics": list(topics.values()), "timeout": _TIMEOUT_MS, "validate_only": False}
                response: CreateTopicsResponse = channel.request(ApiKey.CREATE_TOPICS, _VERSION, fields)
            finally:
                channel.close()
            for topic in response.topics:
                if topic.error_code not in (
                    Errors.NONE,
                    Errors.TOPIC_ALREADY_EXISTS,
                    Errors.REQUEST_TIMED_OUT,
                ):
                    _log.warning(
                        "auto_create_failed",
                        topic=topic.name,
                        error=Errors(int(topic.error_code)).name,
                        reason=topic.error_message,
                    )
        except (ChannelError, ProtocolError) as error:
            _log.warning("auto_create_not_sent", topics=sorted(topics), reason=str(error))
        except Exception:  # later requests need a working thread, whatever failed here
            _log.exception("auto_create_not_sent", topics=sorted(topics))
