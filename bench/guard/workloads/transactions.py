"""A whole transaction: ten partitions are added, get a batch each, and their markers."""

from __future__ import annotations

from typing import ClassVar, Final

from bench.guard.stage import Stage, StageError, decode_answer, encode
from bench.guard.workloads.produce import PRODUCE_VERSION
from bench.guard.workloads.workload import Workload, batch_of, create_topic
from broker.protocol.api_keys import ApiKey

_PARTITIONS: Final = 10
_ADD_VERSION: Final = 3
_TIMEOUT_MS: Final = 600_000
_BATCH_BYTES: Final = 16 * 1024


class Transaction(Workload):
    """The requests of one transaction, as librdkafka sends them: AddPartitionsToTxn, a Produce for each of ten
    partitions and EndTxn, whose markers and whose stored end are part of the cost.
    """

    name = "transaction"
    api_key: ClassVar = ApiKey.END_TXN
    version: ClassVar = 3
    moving_share = 0.4
    per_slice = 1

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        create_topic(stage, self.name, _PARTITIONS)
        producer_id = self._producer_id()
        who = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": 0}
        topics = [{"name": self.name, "partitions": list(range(_PARTITIONS))}]
        added = {f"v3_and_below_{name}": value for name, value in {**who, "topics": topics}.items()}
        self._add = encode(ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_VERSION, added)
        self._end = encode(self.api_key, self.version, {**who, "committed": True})
        self._producer_id_of_batches = producer_id
        self._sequence = 0

    def _producer_id(self) -> int:
        """The first request also creates __transaction_state."""
        fields = {
            "transactional_id": self.name,
            "transaction_timeout": _TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        found: list[int] = []

        def has_id() -> bool:
            try:
                self.stage.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [self.name]})
                found.append(self.stage.ask(ApiKey.INIT_PRODUCER_ID, 4, fields).producer_id)
            except StageError:
                return False
            return True

        self.stage.wait_until(has_id, "no transaction coordinator")
        return found[0]

    def request(self) -> int:
        batch, count = batch_of(
            _BATCH_BYTES,
            producer_id=self._producer_id_of_batches,
            base_sequence=self._sequence,
            transactional=True,
        )
        self._sequence += count
        spent = self._send(ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_VERSION, self._add)
        for number in range(_PARTITIONS):
            data = [{"name": self.name, "partition_data": [{"index": number, "records": batch}]}]
            fields = {"transactional_id": self.name, "acks": -1, "timeout": 10_000, "topic_data": data}
            produce = encode(ApiKey.PRODUCE, PRODUCE_VERSION, fields)
            spent += self._send(ApiKey.PRODUCE, PRODUCE_VERSION, produce)
        return spent + self.stage.exchange(self.client, self._end)

    def _send(self, api_key: ApiKey, version: int, request: bytes) -> int:
        spent = self.stage.exchange(self.client, request)
        decode_answer(api_key, version, self.client.answer)
        return spent
