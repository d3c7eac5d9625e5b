"""What Produce and Fetch ask of a broker, over a real log and the cluster's metadata. There are no threads but the
timer's: a test does the work that handlers would do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics
from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import BrokerInfo, MetadataUpdate, PartitionInfo, PartitionRole
from broker.protocol.epochs import NO_LEADER
from broker.protocol.framing import response_body_offset
from broker.record.batch import Record, build_batch
from broker.record.inspection import Depth
from broker.replication.replica_manager import ReplicaManager
from broker.server.apis import fetch, produce
from broker.server.broker_peers import BrokerPeers
from broker.server.fetch_sessions import FetchSessionCache
from broker.server.metadata_cache import MetadataCache
from broker.server.passed_over import PassedOver
from broker.server.quotas import QuotaManagers
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from tests.support.broker_configs import make
from tests.support.contexts import context_of
from tests.support.logs import Alone

TOPIC, TOPIC_ID = "orders", uuid.UUID(int=9)
ME, OTHER, DEAD = 1, 2, 3
HERE, ELSEWHERE, LEADERLESS, OF_THE_DEAD, MORE = range(5)
EPOCH = 7
LONG_MS = 60_000


class ServingSite:
    """A broker that leads the partition HERE with another one, and has none of the others. ``answers`` are the bodies
    of its responses, and ``work`` is what handlers are to do.
    """

    def __init__(self, directory: Path) -> None:
        self._logs = LogManager([str(directory)], LogConfig())
        self._logs.startup()
        self.timer = Timer()
        self.replica_manager = ReplicaManager(
            ME,
            self._logs,
            Alone(),
            self.timer,
            SYSTEM_CLOCK,
            max_lag_ms=LONG_MS,
            submit_isr_change=lambda _change: None,
        )
        self.topic_partition = TopicPartition(TOPIC, HERE)
        self.partition = self.replica_manager.get_or_create(
            self.topic_partition, lambda: self._logs.get_or_create(self.topic_partition, TOPIC_ID)
        )
        self.partition.make_leader(self.role(ME, EPOCH))
        self.metadata_cache = MetadataCache("IN")
        self.access: Any = None
        self.config = make()
        self.quotas = QuotaManagers()
        self.depth = Depth.FIRST
        self.peers = BrokerPeers()
        self.fetch_sessions = FetchSessionCache(lambda: 10, SYSTEM_CLOCK, Metrics())
        self.passed_over = PassedOver()
        self.connection: ConnectionInfo | None = None  # of all requests; else each has its own
        self.answers: list[bytes] = []
        self.work: list[Callable[[], None]] = []
        led_by = {HERE: ME, ELSEWHERE: OTHER, LEADERLESS: NO_LEADER, OF_THE_DEAD: DEAD, MORE: OTHER}
        infos = [
            (TOPIC, PartitionInfo(index, leader, EPOCH, (leader,), (ME, OTHER)))
            for index, leader in led_by.items()
        ]
        brokers = [
            BrokerInfo(ME, {"IN": ("in.example", 8001), "OUT": ("me.example", 9001)}),
            BrokerInfo(OTHER, {"IN": ("in.example", 8002), "OUT": ("out.example", 9002)}, "r2"),
        ]
        self.metadata_cache.update(MetadataUpdate(ME, brokers, {TOPIC: TOPIC_ID}, infos))

    def submit(
        self, work: Callable[[], None], _request: Request | None = None, *, dear: bool = False
    ) -> bool:
        self.work.append(work)
        return True

    def role(self, leader: int, epoch: int, isr: tuple[int, ...] = (ME, OTHER)) -> PartitionRole:
        return PartitionRole(self.topic_partition, TOPIC_ID, 1, leader, epoch, isr, epoch, (ME, OTHER))

    def produce(
        self, *partitions: int, version: int = 11, records: bytes | None = None, acks: int = -1
    ) -> None:
        """acks=all waits for the other broker. Without ``records`` it is a batch of one."""
        batch = build_batch([Record(None, b"v")]) if records is None else records
        rows = [{"index": index, "records": batch} for index in partitions]
        fields = {
            "transactional_id": None,
            "acks": acks,
            "timeout": LONG_MS,
            "topic_data": [{"name": TOPIC, "partition_data": rows}],
        }
        produce.handle(self._request(ApiKey.PRODUCE, version, fields), context_of(self))

    def fetch(
        self,
        *partitions: int,
        epoch: int = -1,
        version: int = 17,
        listener: str = "OUT",
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
    ) -> None:
        rows = [
            {
                "partition": index,
                "current_leader_epoch": epoch,
                "fetch_offset": 0,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": partition_max_bytes,
            }
            for index in partitions
        ]
        topic = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": TOPIC}
        fields = {
            "replica_id": -1,
            "max_wait": LONG_MS,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{**topic, "partitions": rows}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        fetch.handle(self._request(ApiKey.FETCH, version, fields, listener), context_of(self))

    def _request(self, key: ApiKey, version: int, fields: dict[str, Any], listener: str = "OUT") -> Request:
        body = memoryview(bytearray(codec.encode(key, version, "request", fields)))

        def done(request: Request) -> None:
            payload = request.payload
            assert payload is not None
            frame = b"".join(piece for piece in payload if isinstance(piece, bytes))
            self.answers.append(frame[4 + response_body_offset(key, version, memoryview(frame)[4:]) :])

        connection = self.connection or ConnectionInfo("1", "10.0.0.1", listener)
        return Request(key, version, 7, "c", body, connection, 0, done)

    def close(self) -> None:
        self.timer.stop()
        self._logs.shutdown()
