"""The two brokers under comparison, and the run of a script against both."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.framing import response_body_offset
from rig.brokers import HOST, BrokerProcess
from rig.kafka_dist import KafkaDistUnavailableError
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import last_for, wait_until
from rig.zookeeper import ZooKeeperServer
from tests.differential.compare import Finding, Ledger, compare, paths
from tests.differential.files import plain_files
from tests.differential.normalise import Normaliser, is_read
from tests.differential.plain import Plain, plain_answer
from tests.differential.script import At, Script, Turn
from tests.support.peers import Peer, PeerKind
from tests.support.transactional_producer import RETRIED
from tests.support.valid_requests import World, fields, some_records

AGAINST: Final = os.environ.get("DIFFERENTIAL_AGAINST", "kafka")
"""``landline``: the other broker is a Landline too, which takes no JVM and must show no difference."""
CONFIG: Final[dict[str, object]] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "offsets.retention.check.interval.ms": 600_000,
    "log.retention.check.interval.ms": 600_000,
}
PATIENCE_S: Final = float(os.environ.get("DIFFERENTIAL_PATIENCE", "5"))
"""How long two brokers may take to agree on what is read: some changes take effect after their answer."""
CLOSED: Final = {"connection": "closed"}
SILENT: Final = {"connection": "silent"}
TIMEOUT_S: Final = 60.0
_UNANSWERED_S: Final = 1.0
_FIRST_PRODUCER_ID: Final = 10
"""Smaller ids stand in requests, so no producer should have one."""
_RETRIED: Final = {error.name for error in RETRIED | {Errors.CONCURRENT_TRANSACTIONS}}


class Side:
    """One broker, asked by one connection, and by one more for each step that pends. ``world`` is its content, ``seen``
    its answers in the running script.
    """

    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self._broker = broker
        self._stack = stack
        self._client = self._connect()
        self._pending: dict[str, RawClient] = {}
        self.seen: dict[str, Plain] = {}
        self.world = World(broker_id=broker.broker_id, broker_epoch=-1, host=HOST, port=broker.port)
        self.normaliser = Normaliser(broker.port, broker.broker_id, [str(broker.log_dir)])

    def _connect(self, timeout_s: float = TIMEOUT_S) -> RawClient:
        return self._stack.enter_context(RawClient(HOST, self._broker.port, timeout_s))

    def prepare(self) -> None:
        """Makes what the valid requests name, and waits until both coordinators have their partitions."""
        made = self._client.create_topic(self.world.topic)
        assert made.error_code == Errors.NONE, made
        self.world = replace(self.world, topic_id=made.topic_id)
        assert self._client.produce(self.world.topic, 0, some_records(b"first")).error_code == Errors.NONE
        wait_until(self._has_coordinators, 60, what="the coordinators serve")

    def _has_coordinators(self) -> bool:
        given = self.ask(
            ApiKey.INIT_PRODUCER_ID, 0, {"transactional_id": None, "transaction_timeout": 60_000}
        )
        if given["producer_id"] < _FIRST_PRODUCER_ID:
            return False
        for key_type in (0, 1):
            found = self.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": ["any"]})
            if found["coordinators"][0]["error_code"] != "NONE":
                return False
        identity = {"transactional_id": "any", "transaction_timeout": 60_000}
        given = self.ask(ApiKey.INIT_PRODUCER_ID, 0, identity)
        committed = self.ask(ApiKey.OFFSET_COMMIT, 7, fields(ApiKey.OFFSET_COMMIT, 7, self.world))
        listed = self.ask(ApiKey.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
        described = self.ask(ApiKey.DESCRIBE_GROUPS, 0, {"groups": ["a", "b", "c", "d"]})
        return not any(_is_unsettled(each) for each in (given, committed, listed, described))

    def take(self, turn: Turn) -> Plain:
        """Sends a step's request, repeatedly while the answer says to retry; returns the normalised answer."""
        step = turn.step
        if step.takes:
            answer = self._received(self._pending.pop(step.takes), step.key, turn.version)
            self.seen[step.takes] = answer
            return self.normaliser.normalise(answer)
        body = step.body(At(turn.version, turn.round, self.world, self.seen))
        if step.pends:
            self._pending[step.name] = client = self._connect()
            client.send(_frame(step.key, turn.version, body))
            return None
        if step.unanswered:
            client = self._connect(_UNANSWERED_S)
            client.send(_frame(step.key, turn.version, body))
            return self.normaliser.normalise(self._received(client, step.key, turn.version))
        deadline = time.monotonic() + PATIENCE_S
        answer = None

        def settled() -> bool:
            nonlocal answer
            answer = self.ask(step.key, turn.version, body, step.to)
            if time.monotonic() > deadline:
                return True
            return step.settles(answer) if step.settles else not _is_unsettled(answer)

        wait_until(settled, PATIENCE_S + TIMEOUT_S, what=f"{step.name} settles")
        self.seen[step.name] = answer
        return self.normaliser.normalise(answer)

    def files(self, topics: Collection[str]) -> Plain:
        """The normalised files of topics."""
        return self.normaliser.normalise(plain_files(self._broker.log_dir, topics))

    def end_of(self, key: int) -> str:
        """What becomes of a connection that sends a request of an unknown API, in its first version: no tags, and
        empty strings and arrays.
        """
        with RawClient(HOST, self._broker.port) as client:
            frame = request_frame(ApiKey.HEARTBEAT, 0, b"\0" + b"\1" * 60)
            client.send(frame[:4] + struct.pack(">h", key) + frame[6:])
            try:
                return f"answered {client.receive_frame()[4:].hex()}"
            except ConnectionError:
                return "closed"

    def ask(self, key: ApiKey, version: int, body: Mapping[str, Any], role: str = "") -> Plain:
        """The plain answer. A broker that closes the connection instead, or says nothing, is asked by a new one the
        next time.
        """
        client = self.client_of(role)
        client.send(_frame(key, version, body))
        answer = self._received(client, key, version)
        if answer in (CLOSED, SILENT) and client is self._client:
            self._client = self._connect()
        return answer

    def client_of(self, _role: str) -> RawClient:
        """The connection to the broker of a role; there is only one broker."""
        return self._client

    @staticmethod
    def _received(client: RawClient, key: ApiKey, version: int) -> Plain:
        try:
            frame = memoryview(client.receive_frame())
        except ConnectionError:
            return CLOSED
        except TimeoutError:
            return SILENT
        return plain_answer(key, version, frame[response_body_offset(key, version, frame) :])


def _frame(key: ApiKey, version: int, body: Mapping[str, Any]) -> bytes:
    return request_frame(key, version, codec.encode(key, version, "request", body))


class Both:
    """Kafka and Landline. Each request goes to both. What differs against the table is kept in ``found``."""

    def __init__(self, sides: Sequence[Side], ledger: Ledger) -> None:
        self.sides = sides
        self.ledger = ledger
        self.found: list[Finding] = []

    def run(self, script: Script) -> list[Finding]:
        """Runs a script; returns the differences that are not intended."""
        self.begin()
        return self.go_on(script)

    def go_on(self, script: Script) -> list[Finding]:
        """As :meth:`run`, for a script whose requests are made from answers of the one before, too."""
        for turn in script.turns():
            self.take(turn, script.name)
        return self.found

    def begin(self) -> None:
        """Forgets the answers and the differences of an earlier script."""
        self.found = []
        for side in self.sides:
            side.seen.clear()

    def take(self, turn: Turn, script: str) -> None:
        """One request to both."""

        def answers() -> list[Finding]:
            taken = [side.take(turn) for side in self.sides]
            return compare(f"{script}/{turn.step.name}", turn.step.key, turn.version, *taken)

        self._look(answers, PATIENCE_S if turn.step.repeats and is_read(turn.step.key) else 0)

    def look_at_files(self, topics: Collection[str], script: str) -> None:
        """Compares the files of topics."""
        self._look(
            lambda: compare(f"{script}/files", None, 0, *(side.files(topics) for side in self.sides)),
            PATIENCE_S,
        )

    def _look(self, look: Callable[[], list[Finding]], patience_s: float) -> None:
        """Keeps what differs, after looking again while it may only be late."""
        deadline = time.monotonic() + patience_s
        while (left := self.ledger.unexplained(look())) and time.monotonic() < deadline:
            last_for(0.05)
        self.found += left


def _is_unsettled(answer: Plain) -> bool:
    return any(path.endswith("error_code") and value in _RETRIED for path, value in paths(answer))


@contextmanager
def both_sides(zookeeper: Any, root: Path, ledger: Ledger) -> Iterator[Both]:
    """Kafka's broker and Landline's, each with its own content. ``zookeeper`` returns the server."""
    with ExitStack() as stack:
        made: list[BrokerProcess] = []
        if AGAINST == "landline":
            made = [
                stack.enter_context(LandlineStandalone(root / name / "data", {**CONFIG, **_STANDALONE}))
                for name in "ab"
            ]
        else:
            made = [_broker(kind, zookeeper(), root, stack) for kind in PeerKind]
        sides = [Side(broker, stack) for broker in made]
        for side in sides:
            side.prepare()
        yield Both(sides, ledger)


_STANDALONE: Final[dict[str, object]] = {"auto.create.topics.enable": "false"}


def _broker(kind: PeerKind, zookeeper: ZooKeeperServer, root: Path, stack: ExitStack) -> BrokerProcess:
    try:
        return stack.enter_context(Peer(kind, zookeeper, root).cluster((1,), CONFIG)).brokers[1]
    except KafkaDistUnavailableError as error:
        pytest.skip(str(error))
