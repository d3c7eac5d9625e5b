"""Producer ids: every request that waits for a block of them is answered."""

from __future__ import annotations

from collections.abc import Callable

from broker.protocol.errors import KafkaError
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.server.producer_ids import ProducerIdManager
from tests.support.group_fakes import Answers


class NoController:
    """A view of a cluster whose controller is not known."""

    def controller_address(self) -> None:
        return None


def no_channel(address: BrokerAddress, _client_id: str) -> BrokerChannel:
    raise AssertionError(f"nothing is to be sent to {address}")


def test_a_request_whose_answer_fails_does_not_leave_the_others_without_one() -> None:
    tasks: list[Callable[[], None]] = []

    def submit(task: Callable[[], None]) -> bool:
        tasks.append(task)
        return True

    manager = ProducerIdManager(1, lambda: 1, NoController(), no_channel, submit)
    answers = Answers()

    def fail(_answer: int | KafkaError) -> None:
        raise RuntimeError("the connection is gone")

    manager.take(fail)
    manager.take(answers)
    (refill,) = tasks
    refill()
    assert isinstance(answers.result, KafkaError)
