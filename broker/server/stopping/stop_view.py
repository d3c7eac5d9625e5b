"""Reads the state for `stop_judge`: the tree in ZooKeeper, and a response from every broker that must
be available.

ZooKeeper alone would count a hung broker until its session times out; a connection alone would count a broker
that has lost its registration. Works with Landline's and Apache Kafka's brokers and controllers: it only uses
znodes and a Metadata request without topics. The cost is that of one broker's partitions, and one response
per broker. The response names the controller, because only a broker itself shows that it wrongly thinks it is
the controller. In a cluster of more than some hundred brokers, all brokers that must be available are asked,
and a new random sample of the others each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.config.endpoint import Endpoint, host_port
from broker.server.stopping.stop_judge import ClusterSnapshot, PartitionView, RegisteredBroker
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.znodes import LiveBroker

_PROBES_AT_ONCE: Final = 32
_MOST_OTHERS: Final = 200

Ask = Callable[[RegisteredBroker, Endpoint], RegisteredBroker]


def read_view(
    cluster: ClusterStore,
    broker_id: int,
    default_min_isr: int,
    *,
    others: bool = True,
    listener: str = "PLAINTEXT",
    ask: Ask | None = None,
) -> ClusterSnapshot:
    """The cluster state that matters for this broker's stop; without ``others`` or ``ask``, only ZooKeeper's
    part. ``listener`` is the inter-broker listener, by which brokers are asked. Raises the store's errors.

    Reads in one ZooKeeper session never return state older than its own writes. So a holder that took the
    permit in this session sees at least the state that the previous holder waited for.
    """
    partitions = _partitions(cluster, broker_id, default_min_isr)
    live = cluster.brokers()
    controller_id = cluster.controller_id()
    counted_on = {controller_id, *(replica for one in partitions for replica in one.isr)} - {broker_id}
    members = {key: _member(broker, listener) for key, broker in live.items()}
    if others and ask is not None:
        asked = (counted_on & set(live)) | _some(set(live) - counted_on - {broker_id})
        found = {key: _endpoint(live[key], listener) for key in asked}
        members |= _probed([(members[key], at) for key, at in found.items() if at is not None], ask)
    return ClusterSnapshot(cluster.cluster_id(), controller_id, members, partitions)


def _some(brokers: set[int]) -> set[int]:
    """All of them, or a random sample of the maximum size."""
    return brokers if len(brokers) <= _MOST_OTHERS else set(random.sample(sorted(brokers), _MOST_OTHERS))


def _partitions(cluster: ClusterStore, broker_id: int, default_min_isr: int) -> list[PartitionView]:
    """The broker's partitions of topics that are not being deleted: a deletion may wait for a broker that
    never returns.
    """
    kept: dict[TopicPartition, tuple[int, ...]] = {}
    staying = sorted(set(cluster.topics()) - set(cluster.topics_to_delete()))
    for topic, assignment in cluster.topic_assignments(staying).items():
        for number, replicas in assignment.partitions.items():
            adding = assignment.adding_replicas.get(number, ())
            stay = tuple(replica for replica in replicas if replica not in adding)
            if broker_id in stay:
                kept[TopicPartition(topic, number)] = stay
    topics = sorted({partition.topic for partition in kept})
    min_isrs = cluster.min_insync_replicas(topics, default_min_isr)
    return [
        PartitionView(partition, kept[partition], state.isr, state.leader, min_isrs[partition.topic][0])
        for partition, state in cluster.partition_states(kept).items()
    ]


def _member(broker: LiveBroker, listener: str) -> RegisteredBroker:
    endpoints = broker.registration.endpoints
    endpoint = _endpoint(broker, listener) or next(iter(endpoints), None)
    address = "nowhere" if endpoint is None else host_port(endpoint.host, endpoint.port)
    names = frozenset(endpoint.listener_name for endpoint in endpoints)
    return RegisteredBroker(broker.broker_id, broker.epoch, broker.session_id, address, listeners=names)


def _endpoint(broker: LiveBroker, listener: str) -> Endpoint | None:
    """Where the broker is asked. None if the broker lacks the listener; `why_cut_off` reports that."""
    return next((each for each in broker.registration.endpoints if each.listener_name == listener), None)


def _probed(targets: list[tuple[RegisteredBroker, Endpoint]], ask: Ask) -> dict[int, RegisteredBroker]:
    """Asks brokers in parallel."""
    if not targets:
        return {}
    with ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
        answers = pool.map(lambda target: ask(*target), targets)
        return {member.broker_id: member for member in answers}
