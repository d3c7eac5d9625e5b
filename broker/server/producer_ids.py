"""Producer ids for idempotent producers, from blocks that the controller allocates (KIP-730)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import error_of
from broker.protocol.errors import Errors, KafkaError, ProtocolError
from broker.protocol.responses import AllocateProducerIdsResponse
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress, ClusterView

_log = structlog.get_logger(__name__)
Taker = Callable[[int | KafkaError], None]


class ProducerIdManager:
    """Allocates producer ids; Kafka's RPCProducerIdManager. No id is used twice: a block belongs to the
    broker that requested it, and a restart discards the rest of it.

    Nobody blocks for a new block: callers wait in a list while ``submit`` runs one request to the controller.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        cluster: ClusterView,
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        submit: Callable[[Callable[[], None]], bool],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._cluster = cluster
        self._make_channel = make_channel
        self._submit = submit
        self._lock = threading.Lock()  # lock order 69
        self._next = 0
        self._end = 0
        self._waiting: list[Taker] = []

    def take(self, taker: Taker) -> None:
        """Passes the next id to ``taker``, at once or from another thread. If the controller does not answer,
        passes COORDINATOR_LOAD_IN_PROGRESS, on which clients retry.
        """
        with self._lock:
            producer_id = self._pop()
            if producer_id is None:
                self._waiting.append(taker)
                first = len(self._waiting) == 1
        if producer_id is not None:
            taker(producer_id)
        elif first and not self._submit(self._refill):
            self._answer(KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, "the request queue is full"))

    def _pop(self) -> int | None:
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    def _refill(self) -> None:
        try:
            start, end = self._block()
        except KafkaError as error:
            _log.warning("no_producer_ids", reason=error.message)
            self._answer(error)
            return
        except Exception as error:  # waiting callers need an answer, whatever failed
            _log.exception("no_producer_ids")
            self._answer(KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {error!r}"))
            return
        with self._lock:
            self._next, self._end = start, end
        self._answer(None)

    def _answer(self, error: KafkaError | None) -> None:
        with self._lock:
            takers, self._waiting = self._waiting, []
        for taker in takers:
            try:
                if error is not None:
                    taker(error)
                else:
                    self.take(taker)
            except Exception:  # the others are to be answered, too
                _log.exception("producer_id_not_delivered")

    def _block(self) -> tuple[int, int]:
        address = self._cluster.controller_address()
        if address is None:
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, "no controller is known")
        channel = self._make_channel(address, f"broker-{self._broker_id}-producer-ids")
        fields = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()}
        try:
            response: AllocateProducerIdsResponse = channel.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, fields)
        except (ChannelError, ProtocolError) as error:
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        finally:
            channel.close()
        if response.error_code:
            message = f"the controller answered {error_of(response.error_code).name}"
            raise KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, message)
        start = int(response.producer_id_start)
        return start, start + int(response.producer_id_len)
