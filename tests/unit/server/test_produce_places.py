"""Where a Produce goes whose records are all looked at: what walks many of them is dear, what compresses is not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from broker.record.header import iter_batches
from broker.record.validator import BatchRules, needs_recompression
from broker.server.apis import produce
from broker.server.apis.context import ApiContext
from broker.server.quotas import QuotaManagers
from broker.utils.topic_partition import TopicPartition


class GzipTopic:
    """What Produce asks of a log whose topic has ``compression.type=gzip``."""

    @property
    def appender(self) -> GzipTopic:
        return self

    def needs_recompression(self, records: memoryview) -> bool:
        return needs_recompression(list(iter_batches(records)), BatchRules(1 << 20, target_codec=1))


@dataclass
class Broker:
    """The part of the context that sends a Produce to a handler."""

    dear: list[bool] = field(default_factory=list)
    access: None = None
    quotas: QuotaManagers = field(default_factory=QuotaManagers)

    @property
    def replica_manager(self) -> Broker:
        return self

    def local_log(self, _topic_partition: TopicPartition) -> GzipTopic:
        return GzipTopic()

    def partition(self, _topic_partition: TopicPartition) -> SimpleNamespace:
        return SimpleNamespace(log=GzipTopic())

    def submit(self, work: Callable[[], None], request: Request | None = None, *, dear: bool = False) -> bool:
        self.dear.append(dear)
        return True

    submit_for = ApiContext.submit_for
    queue_for = ApiContext.queue_for


def produced(records: int, size: int, partitions: int = 1) -> bytes:
    batch = build_batch([Record(None, b"x" * size, (), 1_700_000_000_000)] * records)
    rows = b"".join(struct.pack(">ii", index, len(batch)) + batch for index in range(partitions))
    return b"\xff\xff" + struct.pack(">hii", 1, 1000, 1) + b"\0\1t" + struct.pack(">i", partitions) + rows


@pytest.mark.parametrize(
    ("records", "size", "partitions", "dear"),
    [
        (1_000, 1_000, 1, False),  # a megabyte to compress, and a millisecond of looks
        (1_001, 1, 1, True),
        (600, 1, 2, True),  # of all partitions together
        (1, 1_000_000, 1, False),
    ],
)
def test_recompression_of_many_small_records_runs_alone_and_of_large_ones_beside_others(
    records: int, size: int, partitions: int, dear: bool
) -> None:
    broker = Broker()
    info = ConnectionInfo("1", "10.0.0.1", "CLIENT")
    body = memoryview(produced(records, size, partitions))
    request = Request(ApiKey.PRODUCE, 7, 7, "c", body, info, 0, lambda _request: None)
    assert produce.handle(request, broker) is Verdict.QUEUED  # type: ignore[arg-type]
    assert broker.dear == [dear]
