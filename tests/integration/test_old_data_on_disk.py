"""A broker starts on a log that has messages of magic 0 and 1, and serves them to new and old clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import read_records
from broker.record.message_set import each_message
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.times import NOW_MS
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC = "from-an-old-cluster"
COUNT = 500


def old_messages() -> bytes:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for number in range(COUNT):
        builder.append(number, NOW_MS + number, b"key", b"%d" % number)
    return bytes(builder.build())


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_serves_what_an_old_cluster_stored(end: str, tmp_path: Path) -> None:
    broker = LandlineStandalone(tmp_path / "data", {"auto.create.topics.enable": "false"})
    with broker:
        with RawClient(HOST, broker.port) as client:
            assert client.create_topic(TOPIC).error_code == Errors.NONE
            client.produce(TOPIC, 0, some_records(b"in its place comes an old log"))
        broker.stop() if end == "stop" else broker.kill()
        (path,) = tmp_path.rglob(f"{TOPIC}-0/*.log")
        path.write_bytes(old_messages())
        for name in path.parent.glob("leader-epoch-checkpoint"):
            name.unlink()
        broker.start()
        with RawClient(HOST, broker.port) as client:
            # A broker that was killed is ready before its controller has made it leader again.
            wait_until(lambda: client.end_offset(TOPIC) == COUNT, what="it leads all of the old log")
            new = read_records(client.fetch(TOPIC, 0, 0).records)
            assert [(record.offset, record.timestamp, record.value) for record in new] == [
                (n, NOW_MS + n, b"%d" % n) for n in range(COUNT)
            ]
            row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            wanted = {"topic": TOPIC, "partitions": [row]}
            asked = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "topics": [wanted]}
            old = client.ask(ApiKey.FETCH, 2, asked).responses[0].partitions[0].records
            assert bytes(old) == old_messages()
            assert len(list(each_message(memoryview(old)))) == COUNT
            assert client.produce(TOPIC, 0, some_records(b"new")).base_offset == COUNT
        assert "old_segment_upgraded" in broker.log_text()
        assert "traceback=" not in broker.log_text()
