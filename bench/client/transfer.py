"""Moves large amounts over one connection per partition: batches in, several in flight; fetches out, one
in flight.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.client.batches import Batch
from bench.client.connection import Connection
from bench.client.requests import (
    RawClientError,
    check_produced,
    fetch_request,
    produce_request,
    produced_error_at,
    read_fetched,
)
from bench.client.tls import ClientTls

ANSWER_OVERHEAD = 4096


def produce(
    leaders: Mapping[int, int],
    topic: str,
    batch: Batch,
    total_bytes: int,
    in_flight: int,
    *,
    acks: int = -1,
    tls: ClientTls | None = None,
) -> int:
    """Writes ``total_bytes`` to the partitions of ``leaders`` (their ports); returns the bytes of batches written."""
    requests = [produce_request(topic, partition, batch, acks) for partition in leaders]
    connections = [Connection(port, tls=tls) for port in leaders.values()]
    lanes, error_at = len(connections), produced_error_at(topic)
    count = max(in_flight * lanes, total_bytes // len(batch.data))
    sent = received = 0
    try:
        while received < count:
            if sent < min(count, received + in_flight * lanes):
                connections[sent % lanes].send(requests[sent % lanes])
                sent += 1
            else:
                check_produced(connections[received % lanes].receive(), error_at)
                received += 1
    finally:
        for connection in connections:
            connection.close()
    return count * len(batch.data)


def fetch(
    leaders: Mapping[int, int],
    topic: str,
    batch: Batch,
    total_bytes: int,
    max_bytes: int,
    *,
    tls: ClientTls | None = None,
) -> int:
    """Reads ``total_bytes``, with one request in flight per connection; returns the number of bytes.

    The log must contain only copies of ``batch``: offsets are counted, not decoded. At its end, reading
    starts again.
    """
    room = max_bytes + len(batch.data) + ANSWER_OVERHEAD
    connections = {partition: Connection(port, room, tls=tls) for partition, port in leaders.items()}
    offsets = dict.fromkeys(leaders, 0)
    done = 0
    try:
        for partition, connection in connections.items():
            connection.send(fetch_request(topic, partition, 0, max_bytes))
        while done < total_bytes:
            for partition, connection in connections.items():
                fetched = read_fetched(connection.receive(), topic)
                if fetched.size == 0:
                    raise RawClientError("Fetch was answered with no records, the log holds more")
                offsets[partition] += fetched.size // len(batch.data) * batch.records
                if offsets[partition] >= fetched.high_watermark:
                    offsets[partition] = 0
                done += fetched.size
                connection.send(fetch_request(topic, partition, offsets[partition], max_bytes))
        for connection in connections.values():
            read_fetched(connection.receive(), topic)
    finally:
        for connection in connections.values():
            connection.close()
    return done
