"""The wire between two brokers of one process: a follower's requests, served by its leader's ReplicaManager."""

from __future__ import annotations

import os
import random
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from broker.network.transport import PlainTransport, Transport
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import KafkaError
from broker.protocol.fetch_messages import FetchedPartition, encode_fetch_response
from broker.protocol.fetch_requests import TopicKey, parse_fetch_request
from broker.protocol.framing import response_body_offset
from broker.replication.broker_channel import ChannelError
from broker.replication.delayed_fetch import Fetched, FetchEntry, FetchParams
from broker.replication.replica_manager import ReplicaManager
from broker.utils.file_region import FileRegion
from broker.utils.topic_partition import TopicPartition
from rig.wait import last_for
from tests.stress.watch import Watch

_LATEST = -1


class PairWire:
    """As a BrokerChannel to ``leader``. Now and then it fails, and seldom it stands still for ``stall_s``:
    then the follower falls out of the ISR.
    """

    request_timeout_s = 30.0
    is_login_due = False

    def __init__(
        self,
        leader: ReplicaManager,
        topics: Mapping[uuid.UUID, TopicPartition],
        watch: Watch,
        chance: random.Random,
        stall_s: float,
    ) -> None:
        self._leader = leader
        self._topics = topics
        self._by_name = {name.topic: name for name in topics.values()}
        self._watch = watch
        self._chance = chance
        self._stall_s = stall_s
        self._answered = threading.Event()
        self._closed = False

    def connect(self) -> None:
        if self._closed:
            raise ChannelError("closed")

    def close(self) -> None:
        self._closed = True
        self.interrupt()

    def interrupt(self) -> None:
        self._answered.set()

    def disconnect(self) -> None:
        """Nothing is open."""

    @contextmanager
    def lent(self) -> Iterator[Transport]:
        """To a guest, whom nobody invites here."""
        near, far = socket.socketpair()
        with near, far:
            yield PlainTransport(near)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Around whatever reads an answer: none is nonsense here."""
        yield

    def frame_request(self, _api_key: int, _version: int, body: Sequence[bytes]) -> bytes:
        return b"".join(body)

    def request_raw(self, api_key: int, version: int, body: Sequence[bytes]) -> memoryview:
        """A Fetch: it waits in the leader's purgatory where there is nothing to be had."""
        assert api_key == ApiKey.FETCH
        self._misbehave()
        asked = parse_fetch_request(memoryview(b"".join(body)), version)
        params = FetchParams(
            asked.replica_id, asked.replica_epoch, asked.max_wait_ms, asked.min_bytes, asked.max_bytes
        )
        entries = [
            FetchEntry(self._topics[topic_id], topic_id, offset, most, epoch, last_epoch, start)  # type: ignore[index]
            for topic_id, partitions in asked.topics
            for _, epoch, offset, last_epoch, start, most in partitions
        ]
        answers: list[Fetched] = []
        self._answered.clear()

        def answer(fetched: Fetched) -> None:
            self._watch.holds_nothing("a follower's fetch")
            answers.append(fetched)
            self._answered.set()

        waiting = self._leader.fetch(params, entries, answer)
        if not self._answered.wait(self._watch.stall_s):
            self._watch.problem(f"a follower's fetch of {entries} was never answered")
        if not answers:
            if waiting is not None:
                waiting.abandon()
            raise ChannelError("interrupted")
        topics: dict[TopicKey, list[FetchedPartition]] = {}
        for entry, found in answers[0]:
            topics.setdefault(entry.topic_id, []).append(found)
        frame = memoryview(b"".join(_bytes_of(piece) for piece in encode_fetch_response(version, 0, topics)))[
            4:
        ]
        return frame[response_body_offset(api_key, version, frame) :]

    def request(self, api_key: int, _version: int, fields: Mapping[str, Any]) -> Any:
        """ListOffsets or OffsetForLeaderEpoch, of one partition."""
        topic = fields["topics"][0]
        wanted = topic["partitions"][0]
        answer = SimpleNamespace(error_code=0, offset=-1, end_offset=-1)
        try:
            partition = self._leader.require_leader(
                self._by_name[topic.get("name") or topic["topic"]], wanted["current_leader_epoch"]
            )
            log = partition.log
            if api_key == ApiKey.LIST_OFFSETS:
                latest = wanted["timestamp"] == _LATEST
                answer.offset = log.log_end_offset if latest else log.log_start_offset
            else:
                answer.end_offset = log.end_offset_for_epoch(wanted["leader_epoch"])[1]
        except KafkaError as error:
            answer.error_code = int(error.error_code)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])

    def _misbehave(self) -> None:
        if self._chance.random() < 0.005:
            raise ChannelError("the wire fails")
        if self._chance.random() < 0.005:
            last_for(self._stall_s)


def _bytes_of(piece: bytes | FileRegion) -> bytes:
    if isinstance(piece, bytes):
        return piece
    data = os.pread(piece.file.fileno(), piece.size, piece.position)
    if len(data) < piece.size:
        raise ChannelError("what was to be sent has been cut off")  # as sendfile does: the connection ends
    return data
