"""One term of office of the active controller: what it does when brokers, topics and partitions change.

Begins with reading everything (Kafka's onControllerFailover), ends when the election is lost; a later term
knows nothing of it. ``controller`` elects and runs the thread; the machines write and send; here is what
follows from what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from broker.controller import leader_selector
from broker.controller.channel_manager import ChannelManager
from broker.controller.context import ControllerContext
from broker.controller.event_queue import EventQueue
from broker.controller.leader_selector import Election
from broker.controller.partition_machine import PartitionMachine
from broker.controller.replica_machine import ReplicaMachine
from broker.controller.request_batch import BrokerRequestBatch, Fields
from broker.controller.responses import Responses
from broker.controller.settings import ControllerSettings
from broker.controller.states import PartitionState, Replica, ReplicaState
from broker.controller.topic_deletion import TopicDeletion
from broker.protocol.api_keys import ApiKey
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerStore
from broker.zookeeper.store import BadVersionError, Watch
from broker.zookeeper.znodes import LiveBroker, TopicAssignment

_log = structlog.get_logger(__name__)
UNCLEAN_KEY = "unclean.leader.election.enable"


class OwnBrokerGoneError(Exception):
    """The controller's own broker is no longer registered: it stops, and another is to govern."""


class Term:
    """Runs on the controller's thread, but for the callbacks that enqueue events for it."""

    def __init__(
        self,
        settings: ControllerSettings,
        cluster: ClusterStore,
        store: ControllerStore,
        channels: ChannelManager,
        events: EventQueue,
        on_elected: Callable[[bool], None],
    ) -> None:
        self.settings = settings
        self.store = store
        self.context = ControllerContext(store.epoch.epoch)
        self._cluster = cluster
        self._channels = channels
        self._events = events
        self._ended = False
        self._watches: dict[Hashable, Watch] = {}
        self._rejoined: set[TopicPartition] = set()
        self.batch = BrokerRequestBatch(
            self.context,
            channels,
            settings.broker_id,
            settings.inter_broker_listener,
            self._on_response,
        )
        self.partitions = PartitionMachine(
            self.context, store, cluster, self.batch, self._unclean_topics, on_elected
        )
        self.replicas = ReplicaMachine(self.context, store, self.batch, self.partitions)
        self.deletion = TopicDeletion(
            self.context, store, self.batch, self.partitions, self.replicas, self._on_topic_deleted
        )
        self._responses = Responses(self.context, self.deletion, self._fail_replicas, self._enqueue)

    @property
    def epoch(self) -> int:
        return self.store.epoch.epoch

    # -- begin and end --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Watches are set before anything is read; brokers hear the metadata before they hear of their
        roles.
        """
        self._watch("brokers", self._cluster.watch_brokers, self.on_brokers_changed)
        self._watch("topics", self._cluster.watch_topics, self.on_topics_changed)
        self._watch("deletions", self._cluster.watch_topic_deletions, self.on_deletions_changed)
        self.store.delete_stale_notifications()
        self._load()
        deletions = self._load_deletions()
        self.batch.add_update_metadata(self.context.brokers, self.context.partitions())
        self.batch.flush()
        self.replicas.startup()
        self.partitions.startup()
        self.replicas.retire_offline()
        self.deletion.enqueue(deletions)
        if self.settings.auto_leader_rebalance_enable:
            self._later(self.settings.first_imbalance_check_ms, "rebalance", self.rebalance)

    def end(self) -> None:
        self._ended = True
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._channels.shutdown()

    def _load(self) -> None:
        context = self.context
        for live in self._cluster.brokers().values():
            self._add_broker(live)
        topics = self._cluster.topics()
        for topic in topics:
            self._watch_topic(topic)
        for topic, assignment in self._cluster.topic_assignments(topics).items():
            context.put_topic(topic, self._with_topic_id(topic, assignment))
        context.leaders = self._cluster.partition_states(context.partitions())
        _log.info(
            "controller_loaded",
            epoch=self.epoch,
            brokers=sorted(context.brokers),
            topics=len(topics),
            partitions=len(context.leaders),
        )

    def _load_deletions(self) -> set[str]:
        marked = self._cluster.topics_to_delete()
        if not self.settings.delete_topic_enable:
            self._refuse_deletions(marked)
            return set()
        return self._existing(marked)

    def _existing(self, marked: Iterable[str]) -> set[str]:
        """Marks of topics that do not exist are taken away."""
        topics = set(marked)
        unknown = topics - self.context.topics.keys()
        for topic in sorted(unknown):
            self.store.unmark_topic_for_deletion(topic)
        return topics - unknown

    def _refuse_deletions(self, topics: Iterable[str]) -> None:
        for topic in topics:
            _log.warning("topic_deletion_refused", topic=topic, config="delete.topic.enable=false")
            self.store.unmark_topic_for_deletion(topic)

    def _with_topic_id(self, topic: str, assignment: TopicAssignment) -> TopicAssignment:
        """A topic that an old broker made gets its id now (KIP-516)."""
        if assignment.topic_id is not None:
            return assignment
        given = replace(assignment, topic_id=znodes.random_uuid())
        try:
            self.store.set_topic_assignment(topic, given)
        except BadVersionError:
            found = self._cluster.topic_assignment(topic)
            return assignment if found is None else self._with_topic_id(topic, found)
        return replace(given, version=assignment.version + 1)

    # -- brokers --------------------------------------------------------------------------------------------

    def on_brokers_changed(self) -> None:
        """Brokers that came, went, came back between two looks, or changed their addresses."""
        known, found = dict(self.context.brokers), self._cluster.brokers()
        new = found.keys() - known.keys()
        dead = known.keys() - found.keys()
        both = known.keys() & found.keys()
        bounced = {b for b in both if found[b].epoch != known[b].epoch}
        changed = {b for b in both - bounced if found[b].registration != known[b].registration}
        if not (new or dead or bounced or changed):
            return
        if self.settings.broker_id in dead:
            # Declaring its own partitions leaderless would be its last act, and undone by the next
            # controller.
            raise OwnBrokerGoneError(f"broker {self.settings.broker_id} is no longer registered")
        _log.info(
            "brokers_changed",
            new=sorted(new),
            dead=sorted(dead),
            bounced=sorted(bounced),
            changed=sorted(changed),
            live=sorted(found),
        )
        self._start_brokers(found[b] for b in new)
        self._fail_brokers(bounced)
        self._start_brokers(found[b] for b in bounced)
        self._fail_brokers(dead)
        self._update_brokers(found[b] for b in changed)

    def _add_broker(self, live: LiveBroker) -> None:
        broker_id = live.broker_id
        self.context.brokers[broker_id] = live
        self._channels.add(live)
        self._watch(
            ("broker", broker_id), partial(self._cluster.watch_broker, broker_id), self.on_brokers_changed
        )

    def _update_brokers(self, brokers: Iterable[LiveBroker]) -> None:
        """New addresses: the brokers' channels are made anew, and everybody is told."""
        updated = list(brokers)
        if not updated:
            return
        for live in updated:
            self._channels.remove(live.broker_id)
            self._add_broker(live)
        self.batch.add_update_metadata(self.context.brokers)
        self.batch.flush()

    def _start_brokers(self, brokers: Iterable[LiveBroker]) -> None:
        started = list(brokers)
        if not started:
            return
        ids = {live.broker_id for live in started}
        others = self.context.brokers.keys() - ids
        for live in started:
            self.context.failed_dirs.pop(live.broker_id, None)
            self.context.shutting_down.discard(live.broker_id)
            self._add_broker(live)
        self.batch.add_update_metadata(others)
        self.batch.add_update_metadata(ids, self.context.partitions())
        self.batch.flush()
        back = self.context.replicas_on(ids)
        self.batch.mark_full(ids)
        movable = {
            ReplicaState.NEW,
            ReplicaState.ONLINE,
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_INELIGIBLE,
        }
        self.replicas.to_online(r for r in back if self.context.replica_state(r) in movable)
        self.partitions.bring_online()
        self.deletion.resume_for({replica.topic for replica in back})

    def _fail_brokers(self, broker_ids: Collection[int]) -> None:
        if not broker_ids:
            return
        for broker_id in broker_ids:
            self.context.brokers.pop(broker_id, None)
            self.context.shutting_down.discard(broker_id)
            self._channels.remove(broker_id)
            self._unwatch(("broker", broker_id))
        self._fail_replicas(self.context.replicas_on(broker_ids))

    def _fail_replicas(self, replicas: Collection[Replica]) -> None:
        """Leaders first, for that is what clients wait for; then the ISRs."""
        context = self.context
        leaderless = [
            partition
            for partition in {replica.topic_partition: None for replica in replicas}
            if context.state(partition) is PartitionState.ONLINE
            and not context.is_being_deleted(partition.topic)
            and not context.is_online(
                Replica(partition, context.leaders[partition].leader), even_shutting_down=True
            )
        ]
        self.partitions.to_offline(leaderless)
        self.partitions.bring_online()
        doomed = [r for r in replicas if context.is_being_deleted(r.topic)]
        kept = [r for r in replicas if not context.is_being_deleted(r.topic)]
        self.replicas.to_offline(kept)
        self.deletion.fail_replicas(doomed)
        if not leaderless:
            self.batch.add_update_metadata(context.brokers)
            self.batch.flush()

    # -- topics ---------------------------------------------------------------------------------------------

    def on_topics_changed(self) -> None:
        new = [topic for topic in self._cluster.topics() if topic not in self.context.topics]
        for topic in new:
            self._watch_topic(topic)
        partitions: list[TopicPartition] = []
        for topic, assignment in self._cluster.topic_assignments(new).items():
            partitions += self.context.put_topic(topic, self._with_topic_id(topic, assignment))
        if partitions:
            _log.info("topics_created", topics=new, partitions=len(partitions))
            self._create_partitions(partitions)

    def on_topic_changed(self, topic: str) -> None:
        """Partitions were added (only then does a topic's znode change here)."""
        assignment = self._cluster.topic_assignment(topic)
        if assignment is None or topic not in self.context.topics:
            return
        if self.context.is_being_deleted(topic):
            _log.warning("partitions_not_added", topic=topic, reason="the topic is being deleted")
            return
        partitions = self.context.put_topic(topic, assignment)
        if partitions:
            _log.info("partitions_added", topic=topic, partitions=[p.partition for p in partitions])
            self._create_partitions(partitions)

    def _create_partitions(self, partitions: list[TopicPartition]) -> None:
        self.partitions.to_new(partitions)
        self.replicas.to_new(self.context.replicas_of(partitions))
        self.partitions.to_online(partitions, Election.OFFLINE)
        self.replicas.to_online(self.context.replicas_of(partitions))

    def on_deletions_changed(self) -> None:
        marked = [t for t in self._cluster.topics_to_delete() if not self.context.is_being_deleted(t)]
        if not marked:
            return
        if not self.settings.delete_topic_enable:
            self._refuse_deletions(marked)
            return
        self.on_topics_changed()  # a topic may be created and marked before the first is seen
        topics = self._existing(marked)
        _log.info("topics_to_delete", topics=sorted(topics))
        self.deletion.enqueue(topics)

    def _on_topic_deleted(self, topic: str) -> None:
        self._unwatch(("topic", topic))

    def _watch_topic(self, topic: str) -> None:
        watch = partial(self._cluster.watch_topic, topic)
        self._watch(("topic", topic), watch, partial(self.on_topic_changed, topic))

    def _unclean_topics(self, topics: list[str]) -> set[str]:
        default = "true" if self.settings.unclean_leader_election_enable else "false"
        configs = self._cluster.topics_configs(topics)
        return {t for t in topics if configs[t].get(UNCLEAN_KEY, default).strip().lower() == "true"}

    # -- leaders --------------------------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Gives leadership back to preferred leaders where too much of it strayed
        (auto.leader.rebalance.enable).
        """
        self._later(self.settings.imbalance_check_interval_ms, "rebalance", self.rebalance)
        candidates = [
            (partition, self.context.replicas(partition)[0], state.leader)
            for partition, state in self.context.leaders.items()
            if self.context.replicas(partition) and not self.context.is_being_deleted(partition.topic)
        ]
        percentage = self.settings.imbalance_per_broker_percentage
        positions = leader_selector.imbalanced([row[1:] for row in candidates], percentage)
        self.elect_preferred(candidates[position][0] for position in positions)

    def on_isr_grown(
        self, partition: TopicPartition, before: Collection[int], after: Collection[int]
    ) -> None:
        """A preferred leader that is in sync again is elected soon, not at the next rebalance."""
        replicas = self.context.replicas(partition)
        if not (self.settings.auto_leader_rebalance_enable and replicas):
            return
        if replicas[0] in after and replicas[0] not in before:
            if not self._rejoined:
                self._later(self.settings.rejoin_delay_ms, "rejoined", self._elect_rejoined)
            self._rejoined.add(partition)

    def _elect_rejoined(self) -> None:
        rejoined, self._rejoined = self._rejoined, set()
        self.elect_preferred(sorted(rejoined))

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Where the preferred leader is alive, in sync and not leading."""
        electable = [
            partition
            for partition in partitions
            if (state := self.context.leaders.get(partition)) is not None
            and self.context.state(partition) in {PartitionState.ONLINE, PartitionState.OFFLINE}
            and not self.context.is_being_deleted(partition.topic)
            and state.leader != self.context.replicas(partition)[0]
            and self.context.replicas(partition)[0] in state.isr
            and self.context.is_online(Replica(partition, self.context.replicas(partition)[0]))
        ]
        if electable:
            self.partitions.to_online(electable, Election.PREFERRED)

    def _on_response(self, broker_id: int, api: ApiKey, request: Fields, response: Any) -> None:
        self._responses.receive(broker_id, api, request, response)

    # -- within ---------------------------------------------------------------------------------------------

    def _watch(
        self, key: Hashable, watch: Callable[[Callable[[], None]], Watch], action: Callable[[], None]
    ) -> None:
        self._unwatch(key)

        def on_change() -> None:
            self._events.put(key, partial(self._unless_ended, action), coalesce=True)

        self._watches[key] = watch(on_change)

    def _unwatch(self, key: Hashable) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.cancel()

    def _enqueue(self, key: Hashable, action: Callable[[], None]) -> None:
        self._events.put(key, partial(self._unless_ended, action))

    def _later(self, delay_ms: int, key: Hashable, action: Callable[[], None]) -> None:
        self._events.put_later(delay_ms, key, partial(self._unless_ended, action))

    def _unless_ended(self, action: Callable[[], None]) -> None:
        if not self._ended:
            action()
