"""A crashed broker does not register while it is still recorded as leader of partitions that other replicas
could lead.

A power loss destroys the records that a log had not synced. Normally the other brokers notice the crash and
elect new leaders. But if the controller was lost too and they are slow, the broker may be back earlier. It
would then lead with a shorter log, and its followers would truncate theirs to it, which loses acknowledged
records. So it waits, unregistered, until it is deposed. Kafka has no such wait: there, the dead session's
znode keeps a successor from registering until its time-out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping

import structlog

from broker.config.broker_config import BrokerConfig
from broker.controller.eligible_replicas import led_though_eligible_could
from broker.log.log_manager import LogManager
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.znodes import LeaderAndIsr

POLL_S = 0.1
PATIENCE = 3
"""The maximum wait, in time-outs, while a dead session still exists."""
_log = structlog.get_logger(__name__)


def await_deposition_after_crash(
    config: BrokerConfig, store: ClusterStore, broker_id: int, logs: LogManager, cancel: threading.Event
) -> None:
    """Waits only after a crash: a broker that stopped cleanly has handed over its leaderships and has all its
    records. Raises StoreError.
    """
    if not logs.clean:
        led = [log.topic_partition for log in logs.all_logs()]
        await_deposition(store, broker_id, led, config.int("zookeeper.session.timeout.ms") / 1000, cancel)


def await_deposition(
    store: ClusterStore,
    broker_id: int,
    partitions: Iterable[TopicPartition],
    timeout_s: float,
    cancel: threading.Event,
) -> bool:
    """Returns when this broker is no longer recorded as leader of any of ``partitions`` that a registered
    broker, or an eligible replica that is expected back, could lead.

    False if a stop was requested, or if ``timeout_s`` passed since its dead predecessor's registration was
    gone, which is logged. Raises StoreError.
    """
    left = list(partitions)
    began, told = time.monotonic(), False
    deadline = began + timeout_s
    while left := _still_led(store, broker_id, left):
        if broker_id in store.broker_ids():
            # Our dead predecessor's session still exists. Others notice only when it has ended, and then need
            # a moment.
            deadline = min(time.monotonic() + timeout_s, began + PATIENCE * timeout_s)
        if cancel.is_set():
            return False
        if time.monotonic() >= deadline:
            _log.warning(
                "not_deposed",
                partitions=len(left),
                first=str(left[0]),
                waited_s=round(time.monotonic() - began, 1),
                action="look why no controller elects: this broker now leads with the log it has",
            )
            return False
        if not told:
            told = True
            _log.info(
                "waits_to_be_deposed",
                partitions=len(left),
                first=str(left[0]),
                reason="this broker crashed as their leader and may lack records that other replicas have",
            )
        cancel.wait(POLL_S)
    return True


def led_though_others_could(
    broker_id: int, states: Mapping[TopicPartition, LeaderAndIsr], live: Collection[int]
) -> list[TopicPartition]:
    """The partitions that this broker leads and whose ISR contains another broker in ``live``."""
    return [
        tp
        for tp, state in states.items()
        if state.leader == broker_id and any(each in live for each in state.isr if each != broker_id)
    ]


def _still_led(
    store: ClusterStore, broker_id: int, partitions: Collection[TopicPartition]
) -> list[TopicPartition]:
    if not partitions:
        return []
    states, brokers = store.partition_states(partitions), store.brokers()
    by_others = led_though_others_could(broker_id, states, brokers)
    return list(dict.fromkeys([*by_others, *led_though_eligible_could(broker_id, states, brokers)]))
