"""Two brokers with controllers, and two without, over one store whose answers may fail: without threads
and time.

The controllers' events run when the test says so. Delayed events run when no others are left, as with real
time. ``tests/support/term_world.py`` has one term; here terms follow each other as the controllers decide.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.controller import CONTROLLER_CHANGED, KafkaController
from broker.controller.settings import ControllerSettings
from broker.metrics.registry import Metrics
from broker.protocol import codec
from broker.protocol.alter_partition_messages import AlterPartitionRequest
from broker.protocol.api_keys import ApiKey
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import NoNodeError
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr
from tests.support.fake_brokers import FakeBrokers
from tests.support.faulty_store import Faults, FaultySession
from tests.support.term_world import Channels, Events

NO_FAULTS = Faults()
PATIENCE = 50


class CaughtEvents(Events):
    """A queue with EventQueue's interface, including its error handling."""

    def __init__(self, on_error: Callable[[Hashable, Exception], None]) -> None:
        super().__init__()
        self._on_error = on_error

    def start(self) -> None: ...

    def stop(self, last: Callable[[], None]) -> None:
        last()

    def run_one(self, key: Hashable, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._on_error(key, error)

    def wake(self, key: Hashable) -> bool:
        """Makes the delayed events of one kind due; returns whether there were any."""
        due = [action for known, action in self._later if known == key]
        self._later = [row for row in self._later if row[0] != key]
        for action in due:
            self.put(key, action)
        return bool(due)


class ControllerNode:
    """A broker with its own session and controller."""

    def __init__(self, world: ControllersWorld, broker_id: int) -> None:
        self.broker_id = broker_id
        self.session = FaultySession(world.embedded, world.owners, world.faults)
        self.events: CaughtEvents
        config = BrokerConfig.from_properties({"broker.id": str(broker_id), "zookeeper.connect": "unused"})

        def make_events(_name: str, _clock: Any, on_error: Callable[[Hashable, Exception], None]) -> Any:
            self.events = CaughtEvents(on_error)
            return self.events

        def make_channels(_broker_id: int, _listener: str, _make_channel: Any) -> Any:
            return Channels(world.brokers)

        self.controller = KafkaController(
            config,
            broker_id,
            ClusterStore(self.session),
            world.brokers.make_channel,
            clock=SYSTEM_CLOCK,
            on_state=lambda _active: None,
            metrics=Metrics(),
            settings=ControllerSettings(broker_id, "PLAINTEXT", first_imbalance_check_ms=3_600_000),
            make_events=make_events,
            make_channels=make_channels,
        )

    def ask(self, call: Callable[..., None], *args: Any) -> Any:
        """The controller's answer, after its events have run."""
        answers: list[Any] = []
        call(*args, answers.append)
        self.events.run()
        (answer,) = answers
        return answer


class ControllersWorld:
    """The brokers, controllers and store. ``faults`` affects the operations of the two controllers; those of
    all others succeed.
    """

    def __init__(self, faults: Faults = NO_FAULTS) -> None:
        self.faults = faults
        self.brokers = FakeBrokers()
        self.owners: dict[str, int] = {}
        self.embedded = EmbeddedStore()
        self.embedded.connect()
        self.session = FaultySession(self.embedded, self.owners, NO_FAULTS)
        self.observer = ClusterStore(self.session)
        self.observer.create_top_level_paths()
        self.nodes = [ControllerNode(self, broker_id) for broker_id in (0, 1)]
        for node in self.nodes:
            node.controller.startup()
            self.register(node)
        for broker_id in (2, 3):
            self.join(broker_id)

    def register(self, node: ControllerNode) -> None:
        """Registers the broker ``node`` in its own session; the registration meets no fault here."""
        counted, node.session._faults = node.session._faults, NO_FAULTS
        node.controller.broker_epoch = ClusterStore(node.session).register_broker(
            _registration(node.broker_id)
        )
        node.session._faults = counted
        self.settle()

    def join(self, broker_id: int) -> None:
        self.observer.register_broker(_registration(broker_id))
        self.settle()

    def leave(self, broker_id: int) -> None:
        self.observer.unregister_broker(broker_id)
        self.settle()

    def usurp(self) -> None:
        """Deletes ``/controller`` as if by hand; the other broker is the first to notice."""
        try:
            self.embedded.delete(znodes.CONTROLLER)
        except NoNodeError:
            return
        idle = [node for node in self.nodes if not node.controller.is_active]
        for node in [*idle, *self.nodes]:
            node.events.run()

    def settle(self) -> None:
        """Runs events until there are none, then delayed ones, until there are none of either."""
        for _ in range(PATIENCE):
            for node in self.nodes:
                node.events.run()
            woken = [node.events.wake(CONTROLLER_CHANGED) for node in self.nodes]
            # Not any() of a generator: every one must be called.
            late = [node.session.set_watches() for node in self.nodes]
            if not any([*woken, *late]):
                return
        raise AssertionError("the controllers never come to rest")

    @property
    def active(self) -> ControllerNode:
        (node,) = [node for node in self.nodes if node.controller.is_active]
        return node

    def state(self, partition: TopicPartition) -> LeaderAndIsr:
        return self.observer.partition_states([partition])[partition]

    def states(self) -> dict[TopicPartition, LeaderAndIsr]:
        assigned = self.observer.topic_assignments(self.observer.topics())
        wanted = [TopicPartition(t, number) for t, found in assigned.items() for number in found.partitions]
        found = self.observer.partition_states(wanted)
        assert found.keys() == set(wanted), f"without a state: {set(wanted) - found.keys()}"
        return found

    # -- requests of brokers and tools, which retry until they succeed, as real ones do

    def alter_isr(self, partition: TopicPartition, isr: tuple[int, ...]) -> None:
        def change() -> bool:
            state, assignment = self.state(partition), self.observer.topic_assignment(partition.topic)
            assert assignment is not None
            wanted = [
                b for b in isr if b in assignment.partitions[partition.partition]
            ]  # a move may end meanwhile
            if set(state.isr) == set(wanted):
                return True
            row = {
                "partition_index": partition.partition,
                "leader_epoch": state.leader_epoch,
                "partition_epoch": state.partition_epoch,
                "new_isr_with_epochs": [{"broker_id": member, "broker_epoch": -1} for member in wanted],
            }
            leader = self.observer.broker(state.leader)
            assert leader is not None
            topic = {"topic_id": assignment.topic_id, "partitions": [row]}
            fields = {"broker_id": state.leader, "broker_epoch": leader.epoch, "topics": [topic]}
            message = _over_the_wire(ApiKey.ALTER_PARTITION, 3, fields)
            self.active.ask(self.active.controller.alter_partition, AlterPartitionRequest.of(message))
            return False

        self._until(change, f"ISR {isr} of {partition}")

    def grow_isrs(self) -> None:
        """Adds every live replica of every partition to its ISR, as its leader would."""
        live = self.observer.brokers()
        for partition, state in self.states().items():
            assignment = self.observer.topic_assignment(partition.topic)
            assert assignment is not None
            replicas = [b for b in assignment.partitions[partition.partition] if b in live]
            if state.leader in live:
                self.alter_isr(partition, tuple(replicas))

    def move(self, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Reassigns a partition, and its new replicas catch up."""

        def moved() -> bool:
            assignment = self.observer.topic_assignment(partition.topic)
            assert assignment is not None
            if assignment.partitions[partition.partition] == replicas:
                return not (assignment.adding_replicas or assignment.removing_replicas)
            row = {"partition_index": partition.partition, "replicas": list(replicas)}
            fields = {"topics": [{"name": partition.topic, "partitions": [row]}], "timeout": 1000}
            message = _over_the_wire(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields)
            self.active.ask(self.active.controller.alter_partition_reassignments, message)
            self.settle()
            self.grow_isrs()
            return False

        self._until(moved, f"{partition} on {replicas}")

    def shut_down(self, broker_id: int) -> None:
        """Controlled shutdown, after which the registration is gone."""

        def left() -> bool:
            answer = self.active.ask(self.active.controller.controlled_shutdown, broker_id, -1)
            return not answer["error_code"] and not answer["remaining_partitions"]

        self._until(left, f"controlled shutdown of broker {broker_id}")
        self.leave(broker_id)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        for _ in range(PATIENCE):
            finished = done()
            self.settle()
            if finished:
                return
        raise AssertionError(f"never: {what}")


def _registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("h", 9000 + broker_id, "PLAINTEXT"),), None, 1)


def _over_the_wire(key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
    return codec.decode(key, version, "request", codec.encode(key, version, "request", fields))
