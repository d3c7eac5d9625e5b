"""A random walk: a seeded sequence of requests that administrators, producers, transactions and groups send, right and
wrong ones, and the questions that show a cluster's state after each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from broker.protocol.api_keys import APIS, ApiKey
from tests.differential.plain import Plain
from tests.differential.script import At, Change, Step, Turn, constant
from tests.differential.scripts.shapes import batch, new_topic, per_partition, produced, resources
from tests.differential.scripts.transactions import is_settled
from tests.support.valid_requests import fields

PARTITIONS: Final = range(3)
"""The partitions that are asked about; a topic has one to three of them."""
_CONFIGS: Final = (
    ("retention.ms", "3600000"),
    ("cleanup.policy", "compact"),
    ("max.message.bytes", "90"),
    ("segment.bytes", "no number"),
    ("no.such.key", "1"),
)
_NOBODY: Final = {"producer_id": 1 << 40, "producer_epoch": 0}


class Walk:
    """The requests of one seed. Its topics, groups and transactional ids have the seed in their names. Producers are
    whoever each broker said they are: an id is taken from the broker's own answer. ``existing`` are its topics now.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._topics = [f"walk-{seed}-{name}" for name in "ab"]
        self._group = f"walk-{seed}"
        self._names = [f"walk-{seed}-x", f"walk-{seed}-y"]
        self.existing: set[str] = set()
        self._sequences: dict[tuple[str, str, int], int] = {}
        self._initialised: set[str] = set()
        self._joined = False

    def step(self) -> Turn:
        """The next request. Errors are as good as successes: both brokers have to answer the same."""
        weighted: tuple[tuple[Callable[[], Step], float], ...] = (
            (self._create, 3),
            (self._delete, 0.7),
            (self._grow, 1),
            (self._configure, 2),
            (self._produce, 5),
            (self._shorten, 2),
            (self._init, 2),
            (self._add, 4),
            (self._write, 5),
            (self._end, 3),
            (self._add_offsets, 1),
            (self._commit, 2),
            (self._forget, 1),
            (self._join, 1),
            (self._leave, 1),
        )
        methods, weights = zip(*weighted, strict=True)
        return self._turn(self._random.choices(methods, weights)[0]())

    def state(self) -> Iterator[Turn]:
        """The questions whose answers are the state."""
        yield Turn(Step("transactions", ApiKey.LIST_TRANSACTIONS, settles=is_settled), 1, 0)
        topics = [{"name": name} for name in self._topics]
        for step in (
            Step("topics", ApiKey.METADATA, constant(topics=topics, allow_auto_topic_creation=False)),
            Step(
                "transactions by name", ApiKey.DESCRIBE_TRANSACTIONS, constant(transactional_ids=self._names)
            ),
            Step("group", ApiKey.DESCRIBE_GROUPS, constant(groups=[self._group])),
            Step("stable offsets of the group", ApiKey.OFFSET_FETCH, self._offsets(stable=True)),
            Step("offsets of the group", ApiKey.OFFSET_FETCH, self._offsets(stable=False)),
            *(
                Step(
                    f"offsets at {time}, isolation {isolation}",
                    ApiKey.LIST_OFFSETS,
                    self._ends(time, isolation),
                )
                for time, isolation in ((-2, 0), (-1, 0), (-1, 1))
            ),
        ):
            yield Turn(step, APIS[step.key].max_version, 0)

    def records(self) -> Iterator[Turn]:
        """All records, uncommitted ones and markers too, the configs, and who has written the records."""
        for name in sorted(self.existing):
            keys = [key for key, _ in _CONFIGS]
            change = constant(**resources(name, configuration_keys=keys), include_synonyms=True)
            yield Turn(Step("configs", ApiKey.DESCRIBE_CONFIGS, change), 4, 0)
            asked = [{"name": name, "partition_indexes": list(PARTITIONS)}]
            yield Turn(Step("producers", ApiKey.DESCRIBE_PRODUCERS, constant(topics=asked)), 0, 0)
            for partition in PARTITIONS:
                for isolation in (0, 1):
                    change = _fetch(name, partition, isolation)
                    yield Turn(Step(f"records, isolation {isolation}", ApiKey.FETCH, change), 12, 0)

    def _turn(self, step: Step) -> Turn:
        return Turn(step, self._random.choice(step.all_versions()), 0)

    def _create(self) -> Step:
        name = self._random.choice(self._topics)
        is_new = name not in self.existing
        self.existing.add(name)
        # A topic that was deleted exists until its replicas have gone.
        settles = _is_no_longer_there if is_new else None
        topics = [new_topic(name, self._random.choice(PARTITIONS) + 1)]
        return Step(f"create {name}", ApiKey.CREATE_TOPICS, constant(topics=topics), settles=settles)

    def _delete(self) -> Step:
        name = self._random.choice(self._topics)
        self.existing.discard(name)
        self._sequences = {key: value for key, value in self._sequences.items() if key[1] != name}
        change = constant(topic_names=[name], topics=[{"name": name, "topic_id": None}])
        return Step(f"delete {name}", ApiKey.DELETE_TOPICS, change)

    def _grow(self) -> Step:
        name, count = self._random.choice(self._topics), self._random.choice((1, 2, 3))
        topics = [{"name": name, "count": count, "assignments": None}]
        return Step(f"grow {name} to {count}", ApiKey.CREATE_PARTITIONS, constant(topics=topics))

    def _configure(self) -> Step:
        name, (key, value) = self._random.choice(self._topics), self._random.choice(_CONFIGS)
        how = self._random.choice((0, 1, 1, 2, 3))
        rows = [{"name": key, "config_operation": how, "value": value}]
        change = constant(**resources(name, configs=rows))
        return Step(f"configure {name} {key} {how}", ApiKey.INCREMENTAL_ALTER_CONFIGS, change)

    def _produce(self) -> Step:
        name, partition = self._place()
        values = [b"v" * self._random.choice((1, 1, 60)) for _ in range(self._random.randint(1, 3))]
        key = self._random.choice((None, b"k"))
        return Step(
            f"produce to {name} {partition}",
            ApiKey.PRODUCE,
            constant(**produced(name, batch(*values, key=key), partition)),
        )

    def _shorten(self) -> Step:
        name, partition = self._place()
        offset = self._random.choice((-1, 0, 1, 2, 5))
        change = constant(**per_partition(name, partition_index=partition, offset=offset))
        return Step(f"delete records of {name} {partition} before {offset}", ApiKey.DELETE_RECORDS, change)

    def _init(self) -> Step:
        name = self._random.choice(self._names)
        self._initialised.add(name)
        self._sequences = {key: value for key, value in self._sequences.items() if key[0] != name}
        change = constant(transactional_id=name, transaction_timeout=600_000)
        return Step(f"init {name}", ApiKey.INIT_PRODUCER_ID, change)

    def _add(self) -> Step:
        name, who = self._producer()
        topic, partition = self._place()
        topics = [{"name": topic, "partitions": [partition]}]

        def change(at: At) -> dict[str, Any]:
            older = {f"v3_and_below_{field}": value for field, value in who(at).items()}
            return {**older, "v3_and_below_topics": topics}

        return Step(f"add {topic} {partition} of {name}", ApiKey.ADD_PARTITIONS_TO_TXN, change, range(4))

    def _write(self) -> Step:
        name, who = self._producer()
        topic, partition = self._place()
        place = (name, topic, partition)
        sequence = self._sequences.get(place, 0)
        if self._random.random() < 0.9:
            self._sequences[place] = sequence + 1

        def change(at: At) -> dict[str, Any]:
            own = who(at)
            identity = {"producer_id": own["producer_id"], "producer_epoch": own["producer_epoch"]}
            records = batch(
                b"%d" % sequence, key=b"k", **identity, base_sequence=sequence, transactional=True
            )
            return produced(topic, records, partition, transactional_id=name)

        return Step(
            f"write {sequence} to {topic} {partition} as {name}", ApiKey.PRODUCE, change, range(3, 12)
        )

    def _end(self) -> Step:
        name, who = self._producer()
        committed = self._random.random() < 0.5
        return Step(
            f"end {name}, {committed}", ApiKey.END_TXN, lambda at: {**who(at), "committed": committed}
        )

    def _add_offsets(self) -> Step:
        name, who = self._producer()
        change: Change = lambda at: {**who(at), "group_id": self._group}  # noqa: E731
        return Step(f"add offsets of {name}", ApiKey.ADD_OFFSETS_TO_TXN, change)

    def _commit(self) -> Step:
        topic, partition = self._place()
        row = {
            "partition_index": partition,
            "committed_offset": self._random.randrange(9),
            "committed_metadata": "m",
        }
        change = constant(group_id=self._group, **per_partition(topic, **row))
        # Version 0 commits to ZooKeeper in Kafka.
        return Step(f"commit of {topic} {partition}", ApiKey.OFFSET_COMMIT, change, range(1, 10))

    def _forget(self) -> Step:
        if self._random.random() < 0.3:
            return Step("delete the group", ApiKey.DELETE_GROUPS, constant(groups_names=[self._group]))
        topic, partition = self._place()
        change = constant(group_id=self._group, **per_partition(topic, partition_index=partition))
        return Step(f"delete the offset of {topic} {partition}", ApiKey.OFFSET_DELETE, change)

    def _join(self) -> Step:
        """Of one member alone: two would wait for each other."""
        if self._joined:
            return Step("list the groups", ApiKey.LIST_GROUPS)
        self._joined = True
        change = constant(group_id=self._group, session_timeout=300_000)
        return Step("join", ApiKey.JOIN_GROUP, change, range(4))

    def _leave(self) -> Step:
        self._joined = False

        def change(at: At) -> dict[str, Any]:
            member_id = at.seen.get("join", {"member_id": "stranger"})["member_id"]
            members = [{"member_id": member_id, "group_instance_id": None}]
            return {"group_id": self._group, "member_id": member_id, "members": members}

        return Step("leave", ApiKey.LEAVE_GROUP, change)

    def _place(self) -> tuple[str, int]:
        return self._random.choice(self._topics), self._random.choice((0, 0, *PARTITIONS))

    def _producer(self) -> tuple[str, Callable[[At], dict[str, Any]]]:
        """A transactional id and its producer: mostly the latest, sometimes its predecessor, sometimes nobody."""
        name = self._random.choice(self._names)
        back = self._random.random() < 0.1
        is_known = name in self._initialised and self._random.random() < 0.97

        def who(at: At) -> dict[str, Any]:
            given = at.seen[f"init {name}"] if is_known else _NOBODY
            epoch = given["producer_epoch"] - back
            return {"transactional_id": name, "producer_id": given["producer_id"], "producer_epoch": epoch}

        return name, who

    def _offsets(self, *, stable: bool) -> Change:
        topics = [{"name": name, "partition_indexes": list(PARTITIONS)} for name in self._topics]
        return constant(groups=[{"group_id": self._group, "topics": topics}], require_stable=stable)

    def _ends(self, timestamp: int, isolation: int) -> Change:
        rows = [{"partition_index": partition, "timestamp": timestamp} for partition in PARTITIONS]
        topics = [{"name": name, "partitions": rows} for name in self._topics]
        return constant(topics=topics, isolation_level=isolation)


def _is_no_longer_there(answer: Plain) -> bool:
    return all(row["error_code"] != "TOPIC_ALREADY_EXISTS" for row in answer["topics"])


def _start(at: At, topic: str, partition: int) -> int:
    """Where the partition's log began when the state was asked for; 0 if there is no such partition."""
    topics = at.seen["offsets at -2, isolation 0"]["topics"]
    (rows,) = (each["partitions"] for each in topics if each["name"] == topic)
    return max(0, next(int(row["offset"]) for row in rows if row["partition_index"] == partition))


def _fetch(topic: str, partition: int, isolation: int) -> Change:
    def change(at: At) -> dict[str, Any]:
        (asked,) = fields(ApiKey.FETCH, at.version, at.world)["topics"]
        rows = [
            {**asked["partitions"][0], "partition": partition, "fetch_offset": _start(at, topic, partition)}
        ]
        return {"topics": [{"topic": topic, "partitions": rows}], "isolation_level": isolation}

    return change
