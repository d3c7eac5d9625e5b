"""A replica is on its way to another disk when a broker of the other kind takes over the directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from rig.brokers import HOST
from rig.raw_client import RawClient
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.mixed.clients import read_all
from tests.mixed.cluster import KAFKA, LANDLINE
from tests.support.log_dir_moves import ask_to_move, places, throttle
from tests.support.peers import Peer, PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
RECORDS = 1_000
RECORD_BYTES = 5_000
UNLIMITED = (1 << 63) - 1
# The quota averages over ten seconds, so ten times as much goes at once. That must be less than the records.
SLOWLY = 100_000


@pytest.mark.parametrize(
    ("first", "second"), [(KAFKA, LANDLINE), (LANDLINE, KAFKA)], ids=lambda kind: kind.value
)
def test_a_move_that_one_side_began_is_finished_by_the_other(
    zookeeper: ZooKeeperServer, tmp_path: Path, first: PeerKind, second: PeerKind
) -> None:
    zk_connect = zookeeper.chroot()
    dirs = [str(tmp_path / name) for name in "ab"]
    config: dict[str, object] = {"log.dirs": ",".join(dirs), "replica.fetch.max.bytes": 100_000}
    before, after = (
        Peer(kind, zookeeper, tmp_path).broker(1, zk_connect, tmp_path / kind.value, config)
        for kind in (first, second)
    )
    with before:
        with RawClient(HOST, before.port) as client:
            throttle(client, 1, SLOWLY)
        create_topic(before.bootstrap, "t", 1, 1)
        producer = Producer({"bootstrap.servers": before.bootstrap, "acks": "all", "batch.size": 20_000})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number + b" " * RECORD_BYTES, partition=0)
        assert producer.flush(60) == 0
        del producer  # it would look for the broker after its end
        with RawClient(HOST, before.port) as client:
            (here,) = places(client)
            (there,) = {*dirs} - {here}
            ask_to_move(client, there)
            wait_until(lambda: there in places(client) and places(client)[there][1] < RECORDS, 60)
            assert places(client)[there][0]
    with after:
        with RawClient(HOST, after.port) as client:
            throttle(client, 1, UNLIMITED)
            wait_until(lambda: places(client) == {there: (False, 0)}, 60, what=lambda: str(places(client)))
        found = read_all({"bootstrap.servers": after.bootstrap}, "t")
    assert [int(value) for value in found] == list(range(RECORDS))
