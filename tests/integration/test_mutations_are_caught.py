"""Four scenarios on real brokers that the checker finds clean, and that it does not when their rule is broken.

Each goes straight to where its rule matters: who holds a record is decided by freezing followers, who leads
by ending sessions, so that the outcome hangs on the rule alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from broker.protocol.api_keys import ApiKey
from chaos.checker import AnomalyKind, check, summary
from chaos.final_log import read_final_log
from chaos.history import Acked, Failed, History, Recorder, Sent, record_id
from rig.brokers import HOST, Cluster
from rig.landline_broker import COMMAND, LandlineBroker
from rig.raw_client import RawClient
from rig.topics import create_topic, delete_topics
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.mutations import MUTATIONS

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "orders"
REPLICAS = (1, 2, 3)
WAIT_S = 90
CONFIG = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 600_000,
    "zookeeper.session.timeout.ms": 10_000,
}
STOP_REPLICA_VERSION = 4
EPOCH_DURING_DELETE = -2


class Trial:
    """A cluster, its ZooKeeper, and the history of what was sent to it."""

    def __init__(self, cluster: Cluster, zookeeper: KazooClient) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.recorder = Recorder()
        self._sent = 0

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def create_topic(self) -> None:
        """Until somebody is controller who knows it."""

        def created() -> bool:
            try:
                create_topic(self.bootstrap, TOPIC, 1, len(REPLICAS))
            except KafkaException as error:
                if error.args[0].code() == KafkaError.NOT_CONTROLLER:
                    return False
                raise
            return True

        wait_until(created, timeout=WAIT_S, what=f"{TOPIC} is created")
        self.wait_in_sync()

    def state(self) -> dict[str, Any]:
        """Leader and ISR as the controller wrote them; a broker's metadata may be of before."""
        try:
            data, _ = self.zookeeper.get(f"/brokers/topics/{TOPIC}/partitions/0/state")
        except NoNodeError:
            return {"leader": -1, "isr": []}
        found: dict[str, Any] = json.loads(data)
        return found

    def wait_in_sync(self) -> None:
        wait_until(lambda: len(self.state()["isr"]) == len(REPLICAS), timeout=WAIT_S, what="all in sync")

    def wait_led(self, among: Collection[int] = REPLICAS) -> LandlineBroker:
        """The partition's leader, once it is one of those that are waited for."""
        wait_until(lambda: self.state()["leader"] in among, timeout=WAIT_S, what=f"one of {among} leads")
        broker = self.cluster.brokers[self.state()["leader"]]
        assert isinstance(broker, LandlineBroker)
        return broker

    def send(
        self, count: int, acks: str = "all", timeout_ms: int = 60_000, via: LandlineBroker | None = None
    ) -> None:
        """Sends records and waits for their fates; ``via`` whom to ask while others are frozen."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap if via is None else via.bootstrap,
                "acks": acks,
                "linger.ms": 0,
                "batch.num.messages": 1,  # so that every offset may be where a fetch goes on
                "max.in.flight": 1,
                "message.timeout.ms": timeout_ms,
                "request.timeout.ms": timeout_ms,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        for number in range(self._sent, self._sent + count):
            record = record_id("p", number)
            self.recorder.add(Sent("p", record, TOPIC))
            producer.produce(TOPIC, record, partition=0, on_delivery=self._told(record, acks))
            producer.poll(0)
        self._sent += count
        assert producer.flush(2 * timeout_ms / 1000) == 0

    def _told(self, record: str, acks: str) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.recorder.add(Failed("p", record, str(error), TOPIC))
            elif acks == "all":  # what the leader alone acknowledged is no promise
                self.recorder.add(Acked("p", record, 0, message.offset(), TOPIC))

        return told

    def freeze(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            self.cluster.brokers[broker_id].freeze()

    def use_up_waiting_fetches(self, leader: LandlineBroker) -> None:
        """What comes after this record finds no follower that asks, while they are frozen."""
        self.send(1, acks="1", via=leader)

    def thaw(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            self.cluster.brokers[broker_id].thaw()

    def kill(self, broker: LandlineBroker) -> None:
        """SIGKILL, and the end of its session without the wait."""
        broker.kill()
        claim = self.zookeeper.get(f"/brokers/ids/{broker.broker_id}")[1].ephemeralOwner
        for path in (f"/brokers/ids/{broker.broker_id}", "/controller"):
            with self._unless_gone():
                if self.zookeeper.get(path)[1].ephemeralOwner == claim:
                    self.zookeeper.delete(path)

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        try:
            yield
        except NoNodeError:
            return

    def history(self) -> History:
        """With the final log, when everything is in sync again."""
        self.recorder.add(*read_final_log(self.bootstrap, [TOPIC], WAIT_S))
        return self.recorder.history()


def leader_dies_with_records_of_its_own(trial: Trial, count: int, **how: Any) -> LandlineBroker:
    """Records reach the leader while its followers are frozen; it dies, and one of them leads. Returns the dead."""
    trial.create_topic()
    trial.send(5)
    leader = trial.wait_led()
    followers = [b for b in REPLICAS if b != leader.broker_id]
    trial.freeze(followers)
    trial.use_up_waiting_fetches(leader)
    trial.send(count, via=leader, **how)
    trial.kill(leader)
    trial.thaw(followers)
    trial.wait_led(followers)
    return leader


def leader_dies_before_its_followers_have_fetched(trial: Trial) -> None:
    """Records reach the leader while its followers are frozen; it dies, and one of them leads."""
    leader_dies_with_records_of_its_own(trial, 5, timeout_ms=2000)
    trial.send(5)


def old_leader_comes_back_with_a_tail_of_its_own(trial: Trial) -> None:
    """The preferred leader dies with records that nobody else has; it follows, and leads again."""
    leader = leader_dies_with_records_of_its_own(trial, 4, acks="1")
    trial.send(10)
    leader.start()
    trial.wait_in_sync()
    trial.wait_led([leader.broker_id])


def replaced_controller_deletes_a_topic_that_was_made_anew(trial: Trial) -> None:
    """What the controller of old ordered for the first topic of a name arrives when there is a second one."""
    trial.create_topic()
    delete_topics(trial.bootstrap, [TOPIC])
    topic_path = f"/brokers/topics/{TOPIC}"
    wait_until(lambda: trial.zookeeper.exists(topic_path) is None, timeout=WAIT_S, what="the topic is gone")
    epoch = int(trial.zookeeper.get("/controller_epoch")[0])
    trial.zookeeper.delete("/controller")
    wait_until(
        lambda: int(trial.zookeeper.get("/controller_epoch")[0]) > epoch, timeout=WAIT_S, what="the next term"
    )
    trial.create_topic()
    trial.send(10)
    for broker_id, broker in trial.cluster.brokers.items():
        with closing(RawClient(HOST, broker.port)) as client:
            client.ask(ApiKey.STOP_REPLICA, STOP_REPLICA_VERSION, _stop_replica(trial, broker_id, epoch))
    for broker in trial.cluster.brokers.values():
        broker.stop()
    for broker in trial.cluster.brokers.values():
        broker.start_nowait()
    for broker in trial.cluster.brokers.values():
        broker.wait_ready()
    trial.wait_led()
    trial.send(1)


def _stop_replica(trial: Trial, broker_id: int, controller_epoch: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "leader_epoch": EPOCH_DURING_DELETE, "delete_partition": True}
    return {
        "controller_id": 2,
        "is_k_raft_controller": False,
        "controller_epoch": controller_epoch,
        "broker_epoch": trial.zookeeper.get(f"/brokers/ids/{broker_id}")[1].czxid,
        "topic_states": [{"topic_name": TOPIC, "partition_states": [partition]}],
    }


SCENARIOS: dict[str, Callable[[Trial], None]] = {
    "acknowledge-before-isr": leader_dies_before_its_followers_have_fetched,
    "high-watermark-by-leader-alone": leader_dies_before_its_followers_have_fetched,
    "skip-truncation": old_leader_comes_back_with_a_tail_of_its_own,
    "ignore-stale-controller-epoch": replaced_controller_deletes_a_topic_that_was_made_anew,
}
NAMES = {scenario.__name__: scenario for scenario in SCENARIOS.values()}


@contextmanager
def trial_of(zookeeper: ZooKeeperServer, directory: Path, command: Sequence[str]) -> Iterator[Trial]:
    connect = zookeeper.chroot("mutations")
    brokers = {
        broker_id: LandlineBroker(
            broker_id, connect, directory / str(broker_id), dict(CONFIG), command=command
        )
        for broker_id in REPLICAS
    }
    with Cluster(brokers, connect) as cluster:
        client = KazooClient(hosts=connect)
        client.start()
        try:
            yield Trial(cluster, client)
        finally:
            client.stop()
            client.close()


@pytest.mark.parametrize("name", NAMES)
def test_checker_finds_nothing_where_the_rules_hold(
    name: str, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with trial_of(zookeeper, tmp_path, COMMAND) as trial:
        NAMES[name](trial)
        found = check(trial.history())
    assert found == [], summary(found)


@pytest.mark.parametrize("name", SCENARIOS)
def test_checker_finds_records_lost_where_a_rule_is_broken(
    name: str, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    MUTATIONS[name].require_reach()
    with trial_of(zookeeper, tmp_path, (sys.executable, "-m", "tests.support.mutated_broker", name)) as trial:
        SCENARIOS[name](trial)
        found = check(trial.history())
    kinds = {anomaly.kind for anomaly in found}
    assert kinds & {AnomalyKind.LOST, AnomalyKind.INCONSISTENT_OFFSET}, summary(found)
