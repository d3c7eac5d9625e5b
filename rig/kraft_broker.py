"""Apache Kafka 4.1 nodes in KRaft mode (broker and controller in one), as processes on loopback.

There is no ZooKeeper: each node's log dir is formatted before its first start, as Kafka's operators do it.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig import kafka_dist
from rig.brokers import HOST, TEST_CONFIG, BrokerProcess, unused_port, write_properties
from rig.kafka_broker import SMALL_JVM
from rig.kafka_dist import KRAFT_VERSION, TOOL_JVM
from rig.processes import ManagedProcess

MAIN_CLASS = "kafka.Kafka"
STORAGE_TOOL = "kafka.tools.StorageTool"
FORMAT_TIMEOUT_S = 120.0


def new_cluster_id() -> str:
    """A cluster id as printed by ``kafka-storage random-uuid``; it never starts with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


class KraftBroker(BrokerProcess):
    """One node. ``voters`` are the controller ports of all nodes by id, including its own."""

    start_timeout_s = 120.0

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, int],
        cluster_id: str,
        log_dir: Path,
        config: dict[str, object] | None = None,
        *,
        jvm: Sequence[str] = SMALL_JVM,
        port: int | None = None,
    ) -> None:
        self.broker_id = node_id
        self.log_dir = log_dir
        self.port = port or unused_port()
        self._cluster_id = cluster_id
        self._properties = log_dir.with_name(log_dir.name + ".properties")
        common = {key: value for key, value in TEST_CONFIG.items() if not key.startswith("zookeeper.")}
        self._settings: dict[str, object] = {
            **common,
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(f"{node}@{HOST}:{at}" for node, at in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{voters[node_id]}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": log_dir,
            **(config or {}),
        }
        self.process = ManagedProcess(
            f"Apache Kafka {KRAFT_VERSION} node {node_id}",
            lambda: kafka_dist.java_command(
                MAIN_CLASS, str(self._properties), jvm=jvm, version=KRAFT_VERSION
            ),
            log_dir.with_name(log_dir.name + ".log"),
        )

    def prepare(self) -> None:
        """Formats the log dir, unless that was done before."""
        write_properties(self._properties, self._settings)
        if (self.log_dir / "meta.properties").exists():
            return
        arguments = ("format", "-t", self._cluster_id, "-c", str(self._properties))
        command = kafka_dist.java_command(STORAGE_TOOL, *arguments, jvm=TOOL_JVM, version=KRAFT_VERSION)
        subprocess.run(command, check=True, capture_output=True, timeout=FORMAT_TIMEOUT_S)

    def _prepare(self) -> None:
        self.prepare()
