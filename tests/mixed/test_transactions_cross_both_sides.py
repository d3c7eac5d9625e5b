"""Transactions that Apache Kafka and Landline coordinate in turn, from the same records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from broker.protocol.errors import Errors
from rig.wait import wait_until
from tests.mixed.cluster import KAFKA, LANDLINE, RECOVERY_TIMEOUT_S, MixedCluster
from tests.support.peers import PeerKind
from tests.support.transactional_producer import Roaming

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
STATE_TOPIC = "__transaction_state"
ALL = (0, 1, 2)


@pytest.fixture
def topic(one_kafka: MixedCluster) -> str:
    name = f"transactions-{uuid.uuid4().hex[:6]}"
    one_kafka.create_topic(name)
    return name


@pytest.fixture(params=[KAFKA, LANDLINE], ids=lambda kind: kind.value)
def kind(request: pytest.FixtureRequest) -> PeerKind:
    found: PeerKind = request.param
    return found


@pytest.fixture
def roaming(one_kafka: MixedCluster, topic: str, kind: PeerKind) -> Iterator[Roaming]:
    """A producer whose coordinator is of that kind now."""
    with closing(Roaming(one_kafka, "first", topic)) as any_producer:
        any_producer.go(by=1)
    one_kafka.await_in_sync([STATE_TOPIC])
    one_kafka.elect_preferred(STATE_TOPIC)
    while True:
        made = Roaming(one_kafka, f"producer-{uuid.uuid4().hex[:6]}", topic)
        if one_kafka.kinds[made.go(by=1)] is kind:
            break
        made.close()
    made.producer.begin()
    with closing(made):
        yield made


def coordinated_by(cluster: MixedCluster, roaming: Roaming, *kinds: PeerKind, by: int) -> None:
    """Waits until a broker of one of these kinds coordinates and has the open transaction."""

    def is_there() -> bool:
        return cluster.kinds[roaming.go(by)] in kinds and roaming.producer.state() == "Ongoing"

    wait_until(is_there, RECOVERY_TIMEOUT_S, 0.2, "the next coordinator has loaded the transaction")


@pytest.mark.parametrize("commit", [True, False])
def test_either_side_ends_a_transaction_at_leaders_of_both(roaming: Roaming, commit: bool) -> None:
    producer = roaming.producer
    for _ in range(2):
        assert producer.add(*ALL) == [Errors.NONE] * 3
        assert producer.end(commit=commit) == Errors.NONE
        producer.await_state("CompleteCommit" if commit else "CompleteAbort")


@pytest.mark.parametrize("kind", [KAFKA], indirect=True)
def test_an_open_transaction_goes_to_landline_and_back_to_kafka(
    one_kafka: MixedCluster, roaming: Roaming
) -> None:
    producer = roaming.producer
    assert producer.add(1) == [Errors.NONE]
    one_kafka.brokers[1].stop()
    coordinated_by(one_kafka, roaming, LANDLINE, by=2)
    assert producer.verify(1, 2) == [Errors.NONE, Errors.TRANSACTION_ABORTABLE]
    assert producer.until(lambda: Errors(producer.add(2)[0])) is Errors.NONE
    one_kafka.brokers[1].start()
    one_kafka.await_in_sync([STATE_TOPIC, producer.topic])
    one_kafka.elect_preferred(STATE_TOPIC)
    coordinated_by(one_kafka, roaming, KAFKA, by=2)
    assert producer.verify(*ALL) == [Errors.TRANSACTION_ABORTABLE, Errors.NONE, Errors.NONE]
    assert producer.until(lambda: Errors(producer.end())) is Errors.NONE
    producer.await_state("CompleteCommit")
    assert producer.until(producer.init) is Errors.NONE
    assert producer.epoch == 1
