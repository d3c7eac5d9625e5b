"""Landline coordinates transactions as Apache Kafka 3.9.1 does: the same requests to both, compared one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.kafka_dist import KafkaDistUnavailableError
from rig.raw_client import RawClient
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import Peer, PeerKind
from tests.support.transactional_producer import RETRIED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC, PARTITIONS = "t", 3
CONFIG: dict[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "transaction.state.log.num.partitions": 2,
}
NAMES = ("a", "b")
UNSETTLED = {"PrepareCommit", "PrepareAbort"}
STEPS, SEEDS = 150, range(4)


class Identity(NamedTuple):
    """What a client believes to be: a producer's number (in the order in which they appeared), and its epoch."""

    name: str
    number: int
    epoch: int


class Side:
    """One broker, asked by one connection. Of the transactional ids it lists, those with ``prefix`` are looked at."""

    def __init__(self, port: int, stack: ExitStack, prefix: str) -> None:
        self._prefix = prefix
        self._client = stack.enter_context(RawClient(HOST, port))
        self._producer_ids: list[int] = []

    def ready(self, name: str) -> None:
        """Has the topic created, and waits until its partition is loaded and there are producer ids."""
        asked = {"key_type": 1, "coordinator_keys": [name]}

        def found() -> bool:
            (row,) = self._client.ask(ApiKey.FIND_COORDINATOR, 6, asked).coordinators
            described = self._client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name]})
            fields = {"transactional_id": None, "transaction_timeout": 1}
            given = self._client.ask(ApiKey.INIT_PRODUCER_ID, 0, fields)
            errors = {row.error_code, described.transaction_states[0].error_code, given.error_code}
            return not errors & RETRIED

        wait_until(found, timeout=60, what="a coordinator")

    def init(self, name: str, version: int, timeout_ms: int, expected: Identity | None) -> tuple[Any, ...]:
        fields: dict[str, Any] = {"transactional_id": name, "transaction_timeout": timeout_ms}
        if expected is not None:
            fields |= {"producer_id": self._id(expected.number), "producer_epoch": expected.epoch}
        answer = self._client.ask(ApiKey.INIT_PRODUCER_ID, version, fields)
        return Errors(answer.error_code).name, self._number(answer.producer_id), answer.producer_epoch

    def add(self, who: Identity, version: int, partitions: list[int]) -> tuple[Any, ...]:
        topics = [{"name": TOPIC, "partitions": partitions}]
        fields = {f"v3_and_below_{name}": value for name, value in self._fields(who).items()}
        answer = self._client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, {**fields, "v3_and_below_topics": topics}
        )
        return self._rows(answer.results_by_topic_v3_and_below)

    def verify(
        self, who: Identity, version: int, partitions: list[int], *, adds: bool = False
    ) -> tuple[Any, ...]:
        """As a leader does; one that ``adds`` does not exist in 3.9, but is served."""
        topics = [{"name": TOPIC, "partitions": partitions}]
        transaction = {**self._fields(who), "verify_only": not adds, "topics": topics}
        answer = self._client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [transaction]})
        return answer.error_code, *(self._rows(row.topic_results) for row in answer.results_by_transaction)

    def add_offsets(self, who: Identity, version: int) -> tuple[Any, ...]:
        answer = self._client.ask(
            ApiKey.ADD_OFFSETS_TO_TXN, version, {**self._fields(who), "group_id": "group"}
        )
        return (Errors(answer.error_code).name,)

    def end(self, who: Identity, version: int, committed: bool) -> tuple[Any, ...]:
        answer = self._client.ask(ApiKey.END_TXN, version, {**self._fields(who), "committed": committed})
        return (Errors(answer.error_code).name,)

    def listed(self, states: list[str]) -> tuple[Any, ...]:
        asked = {"state_filters": states, "producer_id_filters": [], "duration_filter": -1}
        answer = self._client.ask(ApiKey.LIST_TRANSACTIONS, 1, asked)
        rows = [
            (row.transactional_id, self._number(row.producer_id), row.transaction_state)
            for row in answer.transaction_states
            if row.transactional_id.startswith(self._prefix)
        ]
        return Errors(answer.error_code).name, answer.unknown_state_filters, sorted(rows)

    def described(self, name: str) -> tuple[Any, ...]:
        """Not of one that has not begun: the codec of these tests has no word for its start."""
        if (name, "Empty") in {(found, state) for found, _, state in self.listed([])[2]}:
            return ("Empty",)
        (row,) = self._client.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name]}
        ).transaction_states
        topics = {topic.topic: sorted(topic.partitions) for topic in row.topics}
        error = Errors(row.error_code).name
        return error, row.transaction_state, row.transaction_timeout, row.producer_epoch, topics

    def settled(self) -> bool:
        """Whether no transaction waits for its markers."""
        return not any(state in UNSETTLED for _, _, state in self.listed([])[2])

    def _fields(self, who: Identity) -> dict[str, Any]:
        return {
            "transactional_id": who.name,
            "producer_id": self._id(who.number),
            "producer_epoch": who.epoch,
        }

    def _id(self, number: int) -> int:
        return self._producer_ids[number] if number < len(self._producer_ids) else 1 << 40

    def _number(self, producer_id: int) -> int:
        if producer_id >= 0 and producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return -1 if producer_id < 0 else self._producer_ids.index(producer_id)

    @staticmethod
    def _rows(topics: Any) -> tuple[Any, ...]:
        return tuple(
            (topic.name, row.partition_index, Errors(row.partition_error_code).name)
            for topic in topics
            for row in sorted(topic.results_by_partition, key=lambda row: row.partition_index)
        )


class Both:
    """Kafka and Landline. Each request goes to both, and the answers must be the same."""

    def __init__(self, kafka: Side, landline: Side) -> None:
        self.sides = (kafka, landline)
        self.history: list[str] = []

    def ask(self, ask: Callable[[Side], tuple[Any, ...]], what: str) -> tuple[Any, ...]:
        theirs, ours = (ask(side) for side in self.sides)
        self.history.append(f"{what} -> {theirs}")
        assert ours == theirs, "\n".join([*self.history[-12:], f"but Landline: {ours}"])
        for side in self.sides:
            wait_until(side.settled, what="no transaction waits for its markers")
        return theirs


@pytest.fixture(scope="module")
def ports(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    root: Path = tmp_path_factory.mktemp("as-kafka")
    with ExitStack() as stack:
        found = []
        for kind in PeerKind:
            try:
                cluster = stack.enter_context(Peer(kind, zookeeper, root).cluster((1,), CONFIG))
            except KafkaDistUnavailableError as error:
                pytest.skip(str(error))
            create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
            found.append(cluster.brokers[1].port)
        yield found


@pytest.fixture
def both(ports: list[int], request: pytest.FixtureRequest) -> Iterator[Both]:
    with ExitStack() as stack:
        made = Both(*(Side(port, stack, request.node.name) for port in ports))
        for side in made.sides:
            for name in NAMES:
                side.ready(f"{request.node.name}-{name}")
        yield made


class Walk:
    """A random sequence of what clients do, and of what none should do."""

    def __init__(self, both: Both, prefix: str, seed: int) -> None:
        self._both = both
        self._names = [f"{prefix}-{name}" for name in NAMES]
        self._random = random.Random(seed)
        self._known = [Identity(name, 99, 0) for name in self._names]

    def step(self) -> None:
        rare = (self.init, self.init_again, self.verify, self.add_offsets, self.describe)
        steps = (*rare, self.add, self.add, self.end, self.end)
        self._random.choice(steps)()

    def init(self) -> None:
        self._init(self._random.choice(self._names), self._random.randrange(6), None)

    def init_again(self) -> None:
        who = self._who()
        self._init(who.name, self._random.randrange(3, 6), who)

    def _init(self, name: str, version: int, expected: Identity | None) -> None:
        timeout_ms = self._random.choice((60_000, 60_000, 900_000, 900_001, 0))
        answer = self._both.ask(
            lambda side: side.init(name, version, timeout_ms, expected),
            f"init-{version} {name} {timeout_ms} {expected}",
        )
        if answer[0] == "NONE":
            self._known.append(Identity(name, *answer[1:]))

    def add(self) -> None:
        who, version, partitions = self._who(), self._random.randrange(4), self._partitions()
        self._both.ask(lambda side: side.add(who, version, partitions), f"add-{version} {who} {partitions}")

    def verify(self) -> None:
        who, version, partitions = self._who(), self._random.choice((4, 5)), self._partitions()
        adds = self._random.random() < 0.3
        self._both.ask(
            lambda side: side.verify(who, version, partitions, adds=adds),
            f"verify-{version} {who} {partitions} {adds}",
        )

    def describe(self) -> None:
        name = self._random.choice([*self._names, "nobody"])
        self._both.ask(lambda side: side.described(name), f"describe {name}")

    def add_offsets(self) -> None:
        who, version = self._who(), self._random.randrange(5)
        self._both.ask(lambda side: side.add_offsets(who, version), f"add-offsets-{version} {who}")

    def end(self) -> None:
        who, version, commit = self._who(), self._random.randrange(5), self._random.random() < 0.5
        self._both.ask(lambda side: side.end(who, version, commit), f"end-{version} {who} {commit}")

    def _who(self) -> Identity:
        """Mostly the latest producer of a name, sometimes a zombie, sometimes nobody."""
        name = self._random.choice(self._names)
        of_name = [who for who in self._known if who.name == name]
        who = of_name[-1] if self._random.random() < 0.8 else self._random.choice(of_name)
        if self._random.random() < 0.1:
            who = who._replace(epoch=who.epoch + self._random.choice((-1, 1)))
        if self._random.random() < 0.05:
            who = who._replace(number=who.number + 1)
        return who

    def _partitions(self) -> list[int]:
        most = PARTITIONS + (self._random.random() < 0.1)  # one that does not exist
        return sorted(self._random.sample(range(most), self._random.randint(1, 2)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_walk_gets_the_same_answers(both: Both, seed: int, request: pytest.FixtureRequest) -> None:
    walk = Walk(both, request.node.name, seed)
    for _ in range(STEPS):
        walk.step()
        both.ask(lambda side: side.listed([]), "list")


def test_a_time_out_is_the_same(both: Both, request: pytest.FixtureRequest) -> None:
    name = f"{request.node.name}-a"
    _, number, epoch = both.ask(lambda side: side.init(name, 5, 300, None), "init")
    who = Identity(name, number, epoch)
    both.ask(lambda side: side.add(who, 3, [0]), "add")
    for side in both.sides:
        wait_until(lambda side=side: side.listed(["CompleteAbort"])[2], what="it times out")
    both.ask(lambda side: side.end(who, 4, True), "end")
    both.ask(lambda side: side.add(who, 1, [0]), "add")
    assert both.ask(lambda side: side.init(name, 5, 60_000, None), "init") == ("NONE", number, epoch + 2)


@pytest.mark.parametrize(
    "states", [["Ongoing"], ["Empty", "CompleteCommit"], ["Sleeping"], ["Dead", "ongoing"]]
)
def test_lists_by_state_are_the_same(both: Both, states: list[str], request: pytest.FixtureRequest) -> None:
    name = f"{request.node.name}-a"
    _, number, epoch = both.ask(lambda side: side.init(name, 5, 60_000, None), "init")
    both.ask(lambda side: side.add(Identity(name, number, epoch), 3, [0]), "add")
    both.ask(lambda side: side.listed(states), f"list {states}")
