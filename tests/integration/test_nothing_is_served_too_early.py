"""No request is served before the broker knows its quotas and its dynamic configs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.protocol.api_keys import ApiKey
from broker.server.broker_server import BrokerServer
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import Stat
from rig.brokers import HOST, unused_port
from rig.raw_client import RawClient
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class SlowStore(EmbeddedStore):
    """Holds up who reads the configs of client ids, until the test lets them go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked, self.go_on = threading.Event(), threading.Event()

    def get_many(self, paths: Sequence[str], *, small: bool = False) -> list[tuple[bytes, Stat] | None]:
        if any(path.startswith("/config/clients/") for path in paths):
            self.asked.set()
            self.go_on.wait()
        return super().get_many(paths, small=small)


def test_nobody_is_accepted_before_the_quotas_are_read(tmp_path: Path) -> None:
    port = unused_port()
    config = BrokerConfig.from_properties(
        {
            "broker.id": "0",
            "zookeeper.connect": "unused",
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(tmp_path / "data"),
            "offsets.topic.replication.factor": "1",
            "landline.http.host": HOST,
            "landline.http.port": str(unused_port()),
            "landline.log.dir.min.free.bytes": str(64 << 20),
        }
    )
    before = EmbeddedStore(tmp_path / "metadata.db")
    before.connect()
    before.ensure_path("/config/clients")
    before.create("/config/clients/<default>", b'{"version":1,"config":{"request_percentage":"0.0001"}}')
    before.close()
    store = SlowStore(tmp_path / "metadata.db")
    server = BrokerServer(config, store=store)
    starting = threading.Thread(target=server.startup, args=(threading.Event(),))
    starting.start()
    try:
        wait_until(lambda: store.asked.is_set() or not starting.is_alive(), 60)
        with pytest.raises(OSError):
            socket.create_connection((HOST, port), 5).close()
        store.go_on.set()
        starting.join()
        with RawClient(HOST, port) as client:
            fields = {"topics": None, "allow_auto_topic_creation": False}
            assert client.ask(ApiKey.METADATA, 4, fields).throttle_time.total_seconds() > 0
    finally:
        store.go_on.set()
        starting.join()
        server.shutdown()
