"""Three brokers, a store with conditional writes and the controllers of one partition, stepped by hand.

Whatever a real cluster's threads and network could do between two moments is a method here; nothing
happens by itself. A controller that was replaced may live on as a *stale* one: it knows what it knew, and
still sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.controller.controlled_shutdown import controlled_shutdown
from broker.controller.eligible_replicas import who_is_whole
from broker.controller.isr_changes import alter_partitions
from broker.controller.settings import ControllerSettings
from broker.controller.term import OwnBrokerGoneError, Term
from broker.protocol.alter_partition_messages import AlterPartitionRequest, AlterPartitionResponse
from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import claim_controller
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import NoNodeError, StoreError
from broker.zookeeper.znodes import LeaderAndIsr
from tests.model.broker import LAG_MS, LISTENER, MIN_ISR, TP, ModelBroker, registration
from tests.model.ledger import Ledger
from tests.model.traffic import BROKERS, Traffic
from tests.model.wires import WaitingChannels, WaitingEvents


@dataclass(eq=False)
class Office:
    """A controller's term on its broker, with what waits to be done and to be sent."""

    host: int
    term: Term
    channels: WaitingChannels
    events: WaitingEvents


class ModelCluster(Traffic):
    """``ledger`` knows what must not be lost. ``unclean`` allows the election of a replica out of the ISR,
    ``eligible`` that of an eligible one (KIP-966).
    """

    def __init__(self, directory: Path, *, unclean: bool = False, eligible: bool = False) -> None:
        self.eligible = eligible
        store = EmbeddedStore()
        store.connect()
        self.store = ClusterStore(store)
        super().__init__(directory, self.store.present_topic_id, unclean=unclean)
        self.store.create_top_level_paths()
        self.office: Office | None = None
        self.stale: list[Office] = []
        self.steps = 0
        for broker in self.brokers.values():
            broker.start()
            self.register(broker)
        self.elect_controller(1)
        self.create_topic()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()

    # -- what the store says

    @property
    def state(self) -> LeaderAndIsr | None:
        return self.store.partition_states([TP]).get(TP)

    @property
    def members(self) -> list[ModelBroker]:
        state = self.state
        return [] if state is None else [self.brokers[member] for member in state.isr]

    @property
    def eligible_replicas(self) -> list[ModelBroker]:
        """Out of the ISR, alive and nothing lost since."""
        state = self.state
        assignment = self.store.topic_assignment(TP.topic)
        if state is None or state.epochs is None or assignment is None:
            return []
        adding = assignment.adding_replicas.get(TP.partition, ())
        whole = who_is_whole(dict(state.epochs.eligible), self.store.brokers())
        return [self.brokers[b] for b in whole if b in {*self.replicas} - {*adding}]

    @property
    def leader(self) -> ModelBroker | None:
        """The one that the store names, if it runs."""
        state = self.state
        broker = None if state is None else self.brokers.get(state.leader)
        return broker if broker is not None and broker.up else None

    def is_registered(self, broker: ModelBroker) -> bool:
        live = self.store.broker(broker.broker_id)
        return live is not None and broker.up and live.epoch == broker.epoch

    # -- the topic

    def create_topic(self) -> None:
        """Makes it, and lets everybody hear of it."""
        topic_id = self.store.create_topic(TP.topic, {TP.partition: BROKERS}, {})
        self.ledger = Ledger(None if self.unclean else topic_id)
        self.settle()

    def delete_topic(self) -> None:
        """Marks it for deletion: from now on nothing is promised."""
        self.ledger = Ledger()
        self.store.mark_topic_for_deletion(TP.topic)

    @property
    def is_deleting(self) -> bool:
        return self.store.is_marked_for_deletion(TP.topic) or not self.store.topic_exists(TP.topic)

    # -- ISR changes

    def send_alter(self, broker: ModelBroker) -> None:
        asked = broker.alter.ask()
        if asked is not None:
            self.messages.alters.append((broker.broker_id, broker.life, *asked))

    def serve_alter(self, message: Any, office: Office) -> Any:
        """The response's fields."""
        try:
            response = alter_partitions(office.term, AlterPartitionRequest.of(message))
        except KafkaError as error:
            response = AlterPartitionResponse(error.error_code)
        except StoreError:
            self.end_office(office)
            response = AlterPartitionResponse(Errors.NOT_CONTROLLER)
        return response.fields()

    def take_altered(self, broker_id: int, life: int, batch: list[Any], fields: Any) -> None:
        broker = self.brokers[broker_id]
        if broker.up and broker.life == life:
            broker.alter.receive(batch, fields)
            self.ledger.note(broker)

    def change_isr(self, broker: ModelBroker) -> None:
        """One undisturbed AlterPartition, to the present controller."""
        asked = broker.alter.ask()
        if asked is not None:
            batch, message = asked
            fields = None if self.office is None else self.serve_alter(message, self.office)
            self.take_altered(broker.broker_id, broker.life, batch, fields)

    def fall_behind(self, late: ModelBroker, *, agreed: bool) -> None:
        """Time passes, in which one follower does not fetch what is written; the leader wants it out of the ISR."""
        leader = self.leader
        if leader is None:
            return
        self.produce(leader, 1)
        self.clock.now_ms += LAG_MS + 1
        for _ in range(2):
            for broker in self.brokers.values():
                if broker is not late:
                    self.replicate(broker)
        leader.replicas.shrink_isrs()
        if agreed:
            self.change_isr(leader)

    # -- the controller

    def elect_controller(self, host: int) -> None:
        """Another broker, or the same again, becomes controller; who was it before may not know yet."""
        if self.office is not None:
            self.stale = [*self.stale[-1:], self.office]
            self.office = None
        with suppress(NoNodeError):
            self.store.store.delete(znodes.CONTROLLER)
        channels, events = WaitingChannels(), WaitingEvents()
        settings = ControllerSettings(
            host,
            LISTENER,
            unclean_leader_election_enable=self.unclean,
            eligible_replicas=self.eligible,
            min_insync_replicas=MIN_ISR,
        )
        term = Term(
            settings,
            self.store,
            claim_controller(self.store, host, self.clock),
            channels,  # type: ignore[arg-type]
            events=events,  # type: ignore[arg-type]
            on_elected=lambda _clean: None,
        )
        self.office = Office(host, term, channels, events)
        self.govern(self.office, term.begin)

    def run_events(self, office: Office, count: int = 100) -> None:
        """What the controller's thread has to do."""
        while office.events.waiting and count > 0 and self.holds(office):
            count -= 1
            _, action = office.events.waiting.popleft()
            self.govern(office, action)

    def holds(self, office: Office) -> bool:
        return office is self.office or office in self.stale

    def govern(self, office: Office, action: Callable[[], Any]) -> None:
        self.steps += 1
        try:
            action()
        except (StoreError, OwnBrokerGoneError):
            self.end_office(office)

    def end_office(self, office: Office) -> None:
        """It knows that it is no longer controller; what a sender was about to send may still arrive."""
        for queue in office.channels.queues.values():
            self.messages.late.extend(list(queue)[:1])
        office.term.end()
        office.events.waiting.clear()
        if office is self.office:
            self.office = None
        elif office in self.stale:
            self.stale.remove(office)

    def shut_down(self, broker: ModelBroker) -> None:
        """Controlled shutdown, as far as the controller has to do with it: the broker goes, sooner or later."""
        broker.stopping = True
        if self.office is not None:
            with suppress(KafkaError):
                office = self.office
                self.govern(office, lambda: controlled_shutdown(office.term, broker.broker_id, broker.epoch))

    def reassign(self, target: Sequence[int] | None) -> None:
        """AlterPartitionReassignments for the partition; None cancels what is under way."""
        row = SimpleNamespace(partition_index=TP.partition, replicas=target)
        message = SimpleNamespace(topics=[SimpleNamespace(name=TP.topic, partitions=[row])])
        if self.office is not None:
            office = self.office
            self.govern(office, lambda: office.term.reassignment_requests.alter(message))

    @property
    def replicas(self) -> tuple[int, ...]:
        """Who is to have the partition."""
        assignment = self.store.topic_assignment(TP.topic)
        return () if assignment is None else assignment.partitions[TP.partition]

    def deliver(self, office: Office, broker_id: int, *, again: bool = False) -> None:
        """The next request to a broker; ``again``: its answer is lost, so it will be sent once more."""
        queue = office.channels.queues.get(broker_id)
        broker = self.brokers[broker_id]
        if queue and broker.up:
            self.steps += 1
            outgoing = queue[0] if again else queue.popleft()
            response = broker.obey(outgoing)
            self.ledger.note(broker)
            if not again:
                outgoing.on_response(response)

    def deliver_late(self) -> None:
        """A request that was under way when its controller's term ended."""
        outgoing = self.messages.late.popleft()
        broker = self.brokers[outgoing.broker_id]
        if broker.up:
            broker.obey(outgoing)
            self.ledger.note(broker)

    # -- brokers

    def register(self, broker: ModelBroker) -> None:
        """A new session: a new broker epoch."""
        self.store.unregister_broker(broker.broker_id)
        first_epoch = broker.first_epoch if self.eligible else None
        broker.epoch = self.store.register_broker(registration(broker.broker_id, first_epoch))
        if broker.first_epoch is None:
            broker.first_epoch = broker.epoch
        controller = self.store.controller_epoch()
        if controller is not None:
            broker.leadership.expect_controller(controller[0])

    def expire_session(self, broker: ModelBroker) -> None:
        """ZooKeeper has not heard of it for too long, dead or not."""
        self.store.unregister_broker(broker.broker_id)
        if self.office is not None and self.office.host == broker.broker_id:
            office, self.office = self.office, None
            self.stale = [*self.stale[-1:], office]
            with suppress(NoNodeError):
                self.store.store.delete(znodes.CONTROLLER)

    def _host_died(self, broker: ModelBroker) -> None:
        for office in [o for o in (self.office, *self.stale) if o is not None and o.host == broker.broker_id]:
            self.end_office(office)

    def kill(self, broker: ModelBroker) -> None:
        broker.kill()
        self._host_died(broker)

    def lose_power(self, broker: ModelBroker, kept: int) -> None:
        """The machine is away for longer than its session: the controller has seen it gone before it is back."""
        broker.lose_power(kept)
        self._host_died(broker)
        self.expire_session(broker)
        if self.office is None:
            self.elect_controller(next(b.broker_id for b in self.brokers.values() if self.is_registered(b)))
        assert self.office is not None
        self.run_events(self.office)

    def stop(self, broker: ModelBroker) -> None:
        broker.stop_cleanly()
        self._host_died(broker)
        self.expire_session(broker)

    def restart(self, broker: ModelBroker) -> None:
        broker.start()
        self.register(broker)

    def fail_over(self, broker: ModelBroker) -> None:
        """A broker dies, the controller sees it and tells the others."""
        self.kill(broker)
        self.expire_session(broker)
        self.govern_undisturbed()

    def come_back(self, broker: ModelBroker, *, joins: bool) -> None:
        """A broker starts, or has a session again, hears of its role and catches up."""
        if not broker.up:
            self.restart(broker)
        elif not self.is_registered(broker):
            self.register(broker)
        self.govern_undisturbed()
        for _ in range(4):
            self.replicate(broker)
        if joins and self.leader is not None:
            self.change_isr(self.leader)

    def govern_undisturbed(self) -> None:
        """The controller, a new one if need be, does and sends all that is to be done and sent."""
        alive = [b.broker_id for b in self.brokers.values() if self.is_registered(b)]
        if self.office is None and alive:
            self.elect_controller(alive[0])
        if self.office is not None:
            self.run_events(self.office)
        if self.office is not None:
            self.deliver_all(self.office)

    # -- peace

    def settle(self) -> None:
        """Everybody is up and everything is delivered, until nothing changes any more. Stale controllers stay away.

        Of two quiet rounds the first may have begun fetch sessions anew, of which nothing is seen.
        """
        for broker in self.brokers.values():
            if broker.up and broker.stopping:
                self.stop(broker)
            if not broker.up:
                self.restart(broker)
            elif not self.is_registered(broker):
                self.register(broker)
        quiet = 0
        for _ in range(40):
            before = self._progress()
            if self.office is None:
                self.elect_controller(next(iter(self.brokers)))
            assert self.office is not None
            self.run_events(self.office)
            self.deliver_all(self.office)
            for broker in self.brokers.values():
                broker.alter.in_flight, given_up = None, broker.alter.in_flight
                for change in given_up or ():
                    broker.alter._pending.setdefault(change.topic_partition, change)
                self.replicate(broker)
                self.change_isr(broker)
            self.clock.now_ms += 10
            quiet = quiet + 1 if before == self._progress() else 0
            if quiet == 2:
                return
        raise AssertionError("the cluster does not come to rest")

    def deliver_all(self, office: Office) -> None:
        for broker_id in self.brokers:
            while self.holds(office) and self.brokers[broker_id].up and office.channels.queues.get(broker_id):
                self.deliver(office, broker_id)

    def _progress(self) -> Any:
        return (
            self.state,
            [
                (b.epoch, b.values, -1 if b.log is None else b.log.high_watermark)
                for b in self.brokers.values()
            ],
            self.steps,
            [len(b.alter._pending) for b in self.brokers.values()],
        )

    def check(self) -> None:
        """What must hold at every moment; not while the topic is being deleted.

        Where unclean elections are allowed nothing is promised but that the logs agree in the end.
        """
        self.ledger.observe(self.brokers.values())
        self.ledger.check_electable(self.members)
        self.ledger.check_electable(self.eligible_replicas)

    def check_rest(self) -> None:
        """After :meth:`settle`: one leader, all in sync, all logs the same and committed to the end."""
        state = self.state
        assert state is not None
        logs = {broker_id: self.brokers[broker_id].values for broker_id in self.replicas}
        assert state.leader in logs, f"nobody leads: {state}"
        assert set(state.isr) == set(logs), f"not all are in sync again: {state}, logs {logs}"
        assert all(values == logs[state.leader] for values in logs.values()), f"logs differ: {logs}"
        leader = self.brokers[state.leader].log
        assert leader is not None
        assert leader.high_watermark == leader.log_end_offset, f"not all is committed: {leader}"
