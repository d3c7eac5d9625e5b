"""Produce waits for the verification of a transaction: on no thread, with its own copy of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors
from broker.record.inspection import Depth
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_verification import (
    Question,
    TransactionVerification,
    Unverified,
    VerifiedCallback,
)
from broker.security.acls import AclOperation, ResourceType
from broker.server.apis import produce
from broker.server.quotas import QuotaManagers
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from tests.support.contexts import context_of
from tests.support.logs import TP, Alone
from tests.support.transactions import ABORT, end, transactional

PID = 5


class Site:
    """A broker that leads one partition, and a coordinator that answers when the test wants; what is ``known`` the
    broker answers itself. What goes to handlers waits in ``work``; with ``full`` they take nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._logs = LogManager([str(directory)], LogConfig())
        self._logs.startup()
        self._timer = Timer()
        self.replica_manager = ReplicaManager(
            1,
            self._logs,
            Alone(),
            self._timer,
            SYSTEM_CLOCK,
            max_lag_ms=1000,
            submit_isr_change=lambda _change: None,
        )
        self.partition = self.lead(TP)
        self.asked: list[tuple[Question, VerifiedCallback]] = []
        self.known: Unverified | None = None
        self.work: list[Callable[[], None]] = []
        self.full = False
        self.access: Any = None
        self.quotas = QuotaManagers()
        self.depth = Depth.FIRST
        self.metadata_cache = SimpleNamespace(contains_partition=lambda _partition: True)
        self.verification = TransactionVerification(self.replica_manager.partition, self, lambda: True)

    def lead(self, topic_partition: TopicPartition) -> Partition:
        """Lets this broker lead the partition, which may be new."""
        partition = self.replica_manager.get_or_create(
            topic_partition, lambda: self._logs.get_or_create(topic_partition, None)
        )
        partition.make_leader(PartitionRole(topic_partition, None, 1, 1, 0, (1,), 0, (1,)))
        return partition

    def verify_here(self, _question: Question) -> Unverified | None:
        return self.known

    def verify(self, question: Question, then: VerifiedCallback) -> None:
        self.asked.append((question, then))

    def submit(
        self, work: Callable[[], None], _request: Request | None = None, *, dear: bool = False
    ) -> bool:
        if not self.full:
            self.work.append(work)
        return not self.full

    def answer(self, unverified: Unverified | None = None) -> None:
        """The coordinator's answer, then the handler's work."""
        self.asked.pop()[1](unverified or {})
        while self.work:
            self.work.pop()()

    def close(self) -> None:
        self.replica_manager.shutdown()
        self._timer.stop()
        self._logs.shutdown()


class Sent:
    """A Produce of a transactional batch for each partition, and its responses once there are some."""

    def __init__(
        self,
        site: Site,
        *,
        sequence: int = 0,
        version: int = 9,
        transactional_id: str = "t",
        partitions: int = 1,
    ) -> None:
        records = bytes(transactional(b"v", pid=PID, sequence=sequence))
        batches = [{"index": index, "records": records} for index in range(partitions)]
        fields = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout": 1_000,
            "topic_data": [{"name": TP.topic, "partition_data": batches}],
        }
        received = bytearray(codec.encode(ApiKey.PRODUCE, version, "request", fields))
        self.request = Request(
            ApiKey.PRODUCE,
            version,
            1,
            "c",
            memoryview(received),
            ConnectionInfo("1", "10.0.0.1", "CLIENT"),
            0,
            lambda _request: None,
        )
        self.verdict = produce.handle(self.request, context_of(site))
        received[:] = bytes(len(received))  # the network thread uses its buffer again

    @property
    def response(self) -> Any:
        return self.responses[0]

    @property
    def responses(self) -> Any:
        assert self.request.payload is not None
        body = b"".join(bytes(part) for part in self.request.payload)[9:]  # type: ignore[arg-type]
        answer = codec.decode(ApiKey.PRODUCE, self.request.api_version, "response", memoryview(body))
        return answer.responses[0].partition_responses


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_the_first_batch_waits_for_its_coordinator_and_the_next_do_not(site: Site) -> None:
    first = Sent(site)
    assert (first.verdict, first.request.done, site.partition.log.log_end_offset) == (
        Verdict.QUEUED,
        False,
        0,
    )
    ((question, _),) = site.asked
    assert (question.partitions, question.producer) == ([TP], ("t", PID, 0))
    site.answer()
    assert (first.response.error_code, first.response.base_offset) == (Errors.NONE, 0)
    second = Sent(site, sequence=1)
    assert (second.verdict, second.response.base_offset, site.asked) == (Verdict.SERVED, 1, [])


def test_a_transaction_that_ends_meanwhile_gets_no_records(site: Site) -> None:
    sent = Sent(site)
    end(site.partition.log, ABORT, PID)
    site.answer()
    assert sent.response.error_code == Errors.INVALID_TXN_STATE
    assert site.partition.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("version", "code", "error"),
    [
        (9, Errors.INVALID_TXN_STATE, Errors.INVALID_TXN_STATE),
        (11, Errors.TRANSACTION_ABORTABLE, Errors.TRANSACTION_ABORTABLE),
        (11, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_is_not_verified_is_not_appended(version: int, code: Errors, error: Errors, site: Site) -> None:
    sent = Sent(site, version=version)
    assert site.asked[0][0].knows_abortable is (version >= 11)
    site.answer({TP: code})
    assert sent.response.error_code == error
    assert site.partition.log.log_end_offset == 0


def test_a_broker_that_coordinates_the_transaction_appends_at_once(site: Site) -> None:
    site.known = {}
    sent = Sent(site)
    assert (sent.verdict, sent.response.base_offset) == (Verdict.SERVED, 0)
    assert (site.asked, site.work) == ([], [])


def test_what_its_own_coordinator_denies_is_not_appended(site: Site) -> None:
    site.known = {TP: Errors.INVALID_TXN_STATE}
    sent = Sent(site)
    assert (sent.verdict, sent.response.error_code) == (Verdict.SERVED, Errors.INVALID_TXN_STATE)
    assert (site.asked, site.partition.log.log_end_offset) == ([], 0)


def test_a_producer_retries_if_no_handler_is_free_after_the_verification(site: Site) -> None:
    sent = Sent(site)
    site.full = True
    site.answer()
    assert sent.response.error_code == Errors.NOT_ENOUGH_REPLICAS
    assert site.partition.log.log_end_offset == 0


def test_a_partition_that_is_led_elsewhere_is_not_verified(site: Site) -> None:
    site.partition.step_down()
    sent = Sent(site)
    assert sent.verdict is Verdict.SERVED
    assert sent.response.error_code == Errors.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_is_led_only_after_the_question_gets_no_records(site: Site) -> None:
    """Nobody asked about it, so its batch may begin a transaction that is over."""
    second = TopicPartition(TP.topic, 1)
    site.lead(second).step_down()
    sent = Sent(site, partitions=2)
    led = site.lead(second)
    site.answer()
    assert [each.error_code for each in sent.responses] == [Errors.NONE, Errors.NOT_LEADER_OR_FOLLOWER]
    assert led.log.log_end_offset == 0


def test_a_topic_that_the_principal_may_not_write_is_not_verified(site: Site) -> None:
    """A guard holds back the batches of the producer whose id the request claims."""

    def allows(
        _request: Request, _operation: AclOperation, kind: ResourceType, _name: str, **_: bool
    ) -> bool:
        return kind is ResourceType.TRANSACTIONAL_ID

    site.access = SimpleNamespace(allows=allows)
    sent = Sent(site)
    assert sent.response.error_code == Errors.TOPIC_AUTHORIZATION_FAILED
    assert (site.asked, len(site.partition.log.producers.state.verifications)) == ([], 0)
