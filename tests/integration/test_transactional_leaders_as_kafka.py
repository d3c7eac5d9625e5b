"""Partitions' leaders and group coordinators treat transactions as Apache Kafka 3.9.1 does: a random walk of requests
is sent to both, and every answer is compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
from tests.support.transaction_requests import (
    COMMITTED,
    UNCOMMITTED,
    aborted,
    commit_offset,
    end,
    fetch,
    fetch_offset,
    in_transaction,
    list_offset,
    produce,
    values_of,
    write_markers,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
CONFIG: dict[str, object] = {
    "offsets.topic.num.partitions": 1,
    "transaction.partition.verification.enable": "false",
}
TOPIC, OFFSETS = "t", "__consumer_offsets"
STEPS, SEEDS = 150, range(4)
Answer = tuple[Any, ...]


class Side:
    """One broker, asked by one connection about ``topic``."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    def produce(self, pid: int, epoch: int, sequence: int, transactional: bool) -> Answer:
        batch = in_transaction(
            b"%d %d" % (pid, sequence), pid=pid, epoch=epoch, sequence=sequence, transactional=transactional
        )
        answer = produce(self._client, self._topic, batch)
        return Errors(answer.error_code), answer.base_offset

    def end(self, pid: int, epoch: int, committed: bool, coordinator: int) -> Answer:
        return (end(self._client, self._topic, pid, committed, epoch=epoch, coordinator=coordinator),)

    def mark_several(self, pid: int, committed: bool) -> Answer:
        topics = {self._topic: [0, 7], "nowhere": [0]}
        found = write_markers(self._client, (pid, 9, committed, 9, topics))
        return tuple(
            sorted((partition, name == self._topic, e) for (name, partition), e in found[pid].items())
        )

    def fetch(self, share: float, isolation: int, max_bytes: int) -> Answer:
        offset = int(share * list_offset(self._client, self._topic, isolation=UNCOMMITTED))
        answer = fetch(self._client, self._topic, offset, isolation=isolation, max_bytes=max_bytes)
        stable = answer.last_stable_offset
        # Kafka also tells of transactions behind the last stable offset, whose records it does not send.
        told = aborted(answer)
        hidden = None if told is None else sorted(each for each in told if each[1] < stable)
        return Errors(answer.error_code), answer.high_watermark, stable, hidden, values_of(answer)

    def list_offsets(self) -> Answer:
        return tuple(
            list_offset(self._client, self._topic, timestamp, isolation)
            for timestamp in (-1, -2, 0)
            for isolation in (COMMITTED, UNCOMMITTED)
        )

    def producers(self) -> Answer:
        asked = {"topics": [{"name": self._topic, "partition_indexes": [0, 7]}]}
        known, absent = self._client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions
        rows = [
            (
                p.producer_id,
                p.producer_epoch,
                p.last_sequence,
                p.coordinator_epoch,
                p.current_txn_start_offset,
            )
            for p in known.active_producers
        ]
        return Errors(known.error_code), sorted(rows), Errors(absent.error_code)

    def commit_offset(self, pid: int, epoch: int, offset: int, version: int) -> Answer:
        return (
            commit_offset(self._client, self._topic, TOPIC, offset, pid=pid, epoch=epoch, version=version),
        )

    def end_offsets(self, pid: int, epoch: int, committed: bool) -> Answer:
        return (end(self._client, OFFSETS, pid, committed, epoch=epoch),)

    def offset(self, stable: bool) -> Answer:
        return fetch_offset(self._client, self._topic, TOPIC, stable=stable)

    def is_ready(self) -> bool:
        self._client.ask(ApiKey.FIND_COORDINATOR, 2, {"key": self._topic, "key_type": 0})
        described = self._client.ask(ApiKey.DESCRIBE_GROUPS, 2, {"groups": [self._topic]}).groups[0]
        return bool(described.error_code == Errors.NONE)


@pytest.fixture(scope="module")
def clients(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[PeerKind, tuple[str, RawClient]]]:
    """A connection to a broker of each kind, with its address."""
    with ExitStack() as stack:
        found = {}
        for kind in PeerKind:
            root: Path = tmp_path_factory.mktemp(kind.value)
            try:
                cluster = stack.enter_context(Peer(kind, zookeeper, root).cluster(config=CONFIG))
            except KafkaDistUnavailableError as error:
                pytest.skip(str(error))
            create_topic(cluster.bootstrap, TOPIC, 1, 1)
            client = stack.enter_context(RawClient(HOST, cluster.brokers[1].port))
            found[kind] = cluster.bootstrap, client
        yield found


def a_step(choice: random.Random, sequences: dict[tuple[int, int], int]) -> tuple[str, Answer]:
    """A request, by the name of its method, and its arguments."""
    pid = choice.choice((1, 2, 3))
    epoch = choice.choice((0, 0, 0, 1, 1, 2))
    next_sequence = sequences.get((pid, epoch), 0)
    kind = choice.choices(
        (
            "produce",
            "end",
            "mark_several",
            "fetch",
            "list_offsets",
            "producers",
            "commit_offset",
            "end_offsets",
        ),
        (10, 6, 0.3, 6, 1, 2, 3, 3),
    )[0]
    match kind:
        case "produce":
            sequence = next_sequence if choice.random() < 0.9 else choice.randrange(4)
            return kind, (pid, epoch, sequence, choice.random() < 0.85)
        case "end":
            return kind, (pid, epoch, choice.random() < 0.5, choice.choice((0, 0, 0, 1)))
        case "mark_several":
            return kind, (pid, choice.random() < 0.5)
        case "fetch":
            return kind, (
                choice.random(),
                choice.choice((COMMITTED, UNCOMMITTED)),
                choice.choice((150, 1 << 20)),
            )
        case "commit_offset":
            return kind, (pid, epoch, choice.randrange(100), choice.randrange(5))
        case "end_offsets":
            return kind, (pid, epoch, choice.random() < 0.5)
        case _:
            return kind, ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_walk_gets_the_same_answers_from_both(
    seed: int, clients: dict[PeerKind, tuple[str, RawClient]]
) -> None:
    topic = f"walk-{seed}"
    sides = []
    for bootstrap, client in clients.values():
        create_topic(bootstrap, topic, 1, 1)
        side = Side(client, topic)
        wait_until(side.is_ready, timeout=60, what="the group's coordinator serves")
        sides.append(side)
    kafka, landline = sides
    choice = random.Random(seed)
    sequences: dict[tuple[int, int], int] = {}
    epochs: dict[int, int] = {}
    done: list[object] = []
    for _ in range(STEPS):
        name, arguments = a_step(choice, sequences)
        if name in {"commit_offset", "end_offsets"}:
            # All walks share one partition. The epoch never falls: when a zombie's commit fails, Kafka also forgets
            # what its successor has committed in its open transaction. Landline does not.
            pid = arguments[0] + 10 * (seed + 1)
            epochs[pid] = max(epochs.get(pid, 0), arguments[1])
            arguments = (pid, epochs[pid], *arguments[2:])
        expected = getattr(kafka, name)(*arguments)
        done.append((name, arguments, expected))
        assert getattr(landline, name)(*arguments) == expected, done
        if name == "produce" and expected[0] is Errors.NONE:
            sequences[arguments[0], arguments[1]] = arguments[2] + 1
        if name in {"commit_offset", "end_offsets"}:
            # Kafka's coordinator hears of a marker some time after its answer.
            def is_settled() -> bool:
                return all(kafka.offset(stable) == landline.offset(stable) for stable in (True, False))

            try:
                wait_until(is_settled, 10, 0.05)
            except TimeoutError:
                found = [(side.offset(True), side.offset(False)) for side in sides]
                pytest.fail(f"{found} after {done[-40:]}")
