"""What real clients send that the protocol's own text does not foresee, and every broker must take."""

from __future__ import annotations

import socket
import struct

import pytest
from confluent_kafka.admin import AdminClient

from rig.brokers import HOST
from rig.topics import create_topic
from rig.wire import METADATA, framed, receive_frame
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_librdkafka_lists_all_topics_by_a_request_with_bytes_left_over(peer: Peer) -> None:
    """librdkafka 2.16 writes the null array of Metadata v12 as four bytes where the protocol has one."""
    with peer.cluster() as cluster:
        create_topic(cluster.bootstrap, "one", 1)
        create_topic(cluster.bootstrap, "two", 2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        assert {"one", "two"} <= admin.list_topics(timeout=10).topics.keys()


def test_bytes_behind_a_metadata_request_do_not_close_the_connection(peer: Peer) -> None:
    with (
        peer.cluster() as cluster,
        socket.create_connection((HOST, cluster.brokers[1].port), 10) as connection,
    ):
        no_topic = struct.pack(">i", 0)
        connection.sendall(framed(METADATA, 1, 7, no_topic + b"left over"))
        assert receive_frame(connection)[:4] == struct.pack(">i", 7)
        connection.sendall(framed(METADATA, 1, 8, no_topic))
        assert receive_frame(connection)[:4] == struct.pack(">i", 8)
