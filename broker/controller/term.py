"""One term of the active controller: how it reacts to changes of brokers and ISRs, and the parts it
consists of.

A term starts by reading everything (Kafka's onControllerFailover) and ends when the election is lost. A later
term inherits nothing from it. ``controller`` handles elections and runs the thread, the state machines write
to the store and send requests, and ``topic_changes`` handles topics. This module connects them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial

import structlog

from broker.controller.channel_manager import ChannelManager
from broker.controller.context import ControllerContext
from broker.controller.elections import Elections
from broker.controller.eligible_replicas import EligibleReplicas
from broker.controller.event_queue import EventQueue
from broker.controller.internal_topics import InternalTopics
from broker.controller.office import Office
from broker.controller.partition_machine import PartitionMachine
from broker.controller.preferred_leaders import PreferredLeaders
from broker.controller.reassignment import Reassignments
from broker.controller.reassignment_requests import ReassignmentRequests
from broker.controller.replica_machine import ReplicaMachine
from broker.controller.request_batch import BrokerRequestBatch
from broker.controller.responses import Responses
from broker.controller.rules.states import PartitionState, Replica, ReplicaState
from broker.controller.settings import ControllerSettings
from broker.controller.topic_changes import TopicChanges
from broker.controller.topic_deletion import TopicDeletion
from broker.controller.watches import Watches
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import ControlRequest, ControlResponse
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerStore
from broker.zookeeper.znodes import LiveBroker

_log = structlog.get_logger(__name__)
RETELL_MS = 1000
UNCLEAN_KEY = "unclean.leader.election.enable"


class OwnBrokerGoneError(Exception):
    """The controller's own broker is no longer registered, so it resigns and another broker must
    take over.
    """


class Term:
    """One term of the active controller. It runs on the controller's thread; other threads only call
    callbacks that enqueue events.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        cluster: ClusterStore,
        store: ControllerStore,
        channels: ChannelManager,
        *,
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
        self._grown: set[TopicPartition] = set()
        self._watches = Watches(partial(self._enqueue, coalesce=True))
        self.batch = BrokerRequestBatch(
            self.context,
            channels,
            settings.broker_id,
            settings.inter_broker_listener,
            self._on_response,
        )
        self.eligible = EligibleReplicas(
            self.context,
            cluster,
            lambda: self.settings.eligible_replicas,
            lambda: self.settings.min_insync_replicas,
        )
        office = Office(self.context, store, cluster, self.batch)
        self.partitions = PartitionMachine(office, self.eligible, self._unclean_topics, on_elected)
        self.replicas = ReplicaMachine(office, self.partitions, self.eligible)
        self.deletion = TopicDeletion(
            office, self.partitions, self.replicas, lambda topic: self._watches.drop(("topic", topic))
        )
        self.reassignments = Reassignments(office, self.partitions, self.replicas)
        self.reassignment_requests = ReassignmentRequests(office, self.reassignments)
        self.reassignments.on_finished = self.reassignment_requests.on_finished
        self.elections = Elections(office, self.partitions)
        self.preferred = PreferredLeaders(self.context, self.partitions, lambda: self.settings, self._later)
        self.internal_topics = InternalTopics(
            self.context, self.reassignments, lambda: self.settings, self._later
        )
        self.topics = TopicChanges(
            office,
            self.partitions,
            self.replicas,
            self.deletion,
            watches=self._watches,
            settings=lambda: self.settings,
            on_internal_topic=self.internal_topics.check_later,
        )
        self._responses = Responses(
            self.context,
            self.deletion,
            self._fail_replicas,
            self._enqueue,
            lambda broker_id: self._later(
                RETELL_MS, ("tell_again", broker_id), partial(self._tell_again, broker_id)
            ),
        )

    @property
    def epoch(self) -> int:
        return self.store.epoch.epoch

    # -- begin and end

    def begin(self) -> None:
        """Sets watches before it reads anything. Brokers get UpdateMetadata before LeaderAndIsr."""
        self._watches.put("brokers", self._cluster.watch_brokers, self.on_brokers_changed)
        self._watches.put("topics", self._cluster.watch_topics, self.topics.on_topics_changed)
        self._watches.put("deletions", self._cluster.watch_topic_deletions, self.topics.on_deletions_changed)
        reassign, elect = self.reassignment_requests.take_up_znode, self.elections.take_up_znode
        self._watches.put("reassign", self._cluster.watch_reassignment_request, reassign)
        self._watches.put("elect", self._cluster.watch_preferred_election_request, elect)
        self._watches.put("log_dir_events", self._cluster.watch_log_dir_events, self.on_log_dir_events)
        self.store.delete_stale_notifications()
        self._load()
        # Loaded before any broker hears of a partition, so that topics marked for deletion get no leader and
        # stay hidden.
        deletions = self.topics.marked_for_deletion()
        self.context.topics_to_delete.update(deletions)
        self.batch.add_full_metadata()
        self.batch.flush()
        self.replicas.startup()
        self.partitions.startup()
        self.replicas.retire_offline()
        self.reassignment_requests.take_up_znode()
        self.reassignments.resume()
        self.deletion.enqueue(deletions)
        self.elections.take_up_znode()
        self.preferred.begin()
        self.internal_topics.check_later()

    def end(self) -> None:
        self._ended = True
        self._watches.clear()
        self._channels.shutdown()

    def _load(self) -> None:
        context = self.context
        for live in self._cluster.brokers().values():
            self._add_broker(live)
        self.topics.load()
        context.leaders = self._cluster.partition_states(context.partitions())
        _log.info(
            "controller_loaded",
            epoch=self.epoch,
            brokers=sorted(context.brokers),
            topics=len(context.topics),
            partitions=len(context.leaders),
        )

    # -- brokers

    def on_brokers_changed(self) -> None:
        """Handles brokers that registered, left, restarted between two reads, or changed their addresses."""
        known, found = dict(self.context.brokers), self._cluster.brokers()
        new = found.keys() - known.keys()
        dead = known.keys() - found.keys()
        both = known.keys() & found.keys()
        bounced = {b for b in both if found[b].epoch != known[b].epoch}
        changed = {b for b in both - bounced if found[b].registration != known[b].registration}
        if not (new or dead or bounced or changed):
            return
        if self.settings.broker_id in dead:
            # Otherwise its last act would be to declare its own partitions leaderless, and the next
            # controller would have to undo that.
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
        watch = partial(self._cluster.watch_broker, broker_id)
        self._watches.put(("broker", broker_id), watch, self.on_brokers_changed, event="brokers")

    def _update_brokers(self, brokers: Iterable[LiveBroker]) -> None:
        """Handles new addresses: recreates the channels of these brokers and sends UpdateMetadata to
        all brokers. What a broker had not answered at its old address is dropped with its channel, so it is told
        everything again.
        """
        updated = list(brokers)
        if not updated:
            return
        for live in updated:
            self._channels.remove(live.broker_id)
            self._add_broker(live)
        self.batch.update_metadata_everywhere()
        self.batch.flush()
        self._tell_anew({live.broker_id for live in updated})

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
        self._tell_all(ids)

    def _tell_all(self, ids: Collection[int]) -> None:
        """Sends the full metadata and all roles to registered brokers that do not have them yet."""
        self.batch.add_full_metadata(ids)
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
        self.reassignments.resume(ids)
        self.deletion.resume_for({replica.topic for replica in back})
        self.internal_topics.check_later()

    def _tell_again(self, broker_id: int) -> None:
        """Sends everything again to a broker that refused it. The broker may not have learned its own new
        epoch yet, or may not have read yet that this controller is a registered broker. Nothing else would
        trigger this, so it repeats until the broker accepts or has another epoch.
        """
        if self._responses.refused_epoch(broker_id) != self.context.broker_epoch(broker_id):
            return
        self._tell_anew({broker_id})

    def _tell_anew(self, ids: Collection[int]) -> None:
        """Sends everything to registered brokers that may have missed any of it, also which replicas to delete."""
        self.deletion.fail_replicas(self.context.replicas_on(ids))
        self._tell_all(ids)

    def _fail_brokers(self, broker_ids: Collection[int]) -> None:
        if not broker_ids:
            return
        for broker_id in broker_ids:
            self.context.brokers.pop(broker_id, None)
            self.context.shutting_down.discard(broker_id)
            self._channels.remove(broker_id)
            self._watches.drop(("broker", broker_id))
        # Electing thousands of leaders takes a while. With this update, clients meanwhile get
        # LEADER_NOT_AVAILABLE and retry soon. Without it they would keep trying the dead broker, with a
        # backoff of up to ten seconds.
        self.batch.update_metadata_everywhere()
        self.batch.flush()
        self._fail_replicas(self.context.replicas_on(broker_ids))

    def _fail_replicas(self, replicas: Collection[Replica]) -> None:
        """Elects leaders first, because clients wait for them, and then shrinks the ISRs."""
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

    def on_log_dir_events(self) -> None:
        """Log directories failed. Their brokers get all their roles again, and answer which replicas are
        offline (KIP-112).
        """
        events = self._cluster.log_dir_events()
        broker_ids = set(events.values()) & self.context.brokers.keys()
        if broker_ids:
            _log.warning("log_dirs_failed", brokers=sorted(broker_ids))
            self.replicas.to_online(
                replica
                for replica in self.context.replicas_on(broker_ids)
                if self.context.replica_state(replica) in {ReplicaState.ONLINE, ReplicaState.NEW}
                and self.context.is_online(replica, even_shutting_down=True)
            )
        self.store.delete_log_dir_events(list(events))

    # -- leaders

    def _unclean_topics(self, topics: list[str]) -> set[str]:
        default = "true" if self.settings.unclean_leader_election_enable else "false"
        # A topic whose configs are unreadable may have forbidden it.
        configs = self._cluster.topics_configs(topics)
        return {
            t for t, found in configs.items() if found.get(UNCLEAN_KEY, default).strip().lower() == "true"
        }

    def on_isr_changed(
        self, partition: TopicPartition, before: Collection[int], after: Collection[int]
    ) -> None:
        """Continues reassignments after the leader got its answer, together with other ISR changes that
        are queued.
        """
        self.preferred.on_isr_changed(partition, before, after)
        if self.context.is_being_reassigned(partition):
            self._grown.add(partition)
            self._enqueue("reassignment", self._go_on_with_moves, coalesce=True)

    def _go_on_with_moves(self) -> None:
        grown, self._grown = self._grown, set()
        self.reassignments.on_isr_changed(sorted(grown))

    def on_unclean_enabled(self, topic: str | None) -> None:
        """``unclean.leader.election.enable`` of a topic, or of the cluster (None), may have become true."""
        self.partitions.bring_online(topic)

    def _on_response(
        self, broker_id: int, api: ApiKey, request: ControlRequest, response: ControlResponse
    ) -> None:
        self._responses.receive(broker_id, api, request, response)

    # -- internal

    def _enqueue(self, key: Hashable, action: Callable[[], None], *, coalesce: bool = False) -> None:
        self._events.put(key, partial(self._unless_ended, action), coalesce=coalesce)

    def _later(self, delay_ms: int, key: Hashable, action: Callable[[], None]) -> None:
        self._events.put_later(delay_ms, key, partial(self._unless_ended, action))

    def _unless_ended(self, action: Callable[[], None]) -> None:
        if not self._ended:
            action()
