"""Apache Kafka 3.9.1 brokers in ZooKeeper mode, as processes on loopback.

The jars come from ``kafka_dist``. Tests use a small JVM that starts quickly; the benchmark passes Kafka's
own flags.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rig import kafka_dist
from rig.brokers import HOST, TEST_CONFIG, BrokerProcess, unused_port, write_properties
from rig.jvm import SHORT_LIVED_JVM
from rig.processes import ManagedProcess, ProcessFailedError

MAIN_CLASS = "kafka.Kafka"
SMALL_JVM = ("-Xmx384m", *SHORT_LIVED_JVM)
# What kafka-server-start sets by default (3.9.1).
DEFAULT_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class KafkaBroker(BrokerProcess):
    """One Apache Kafka broker. Config keys are keywords with ``_`` for ``.``, or keys of ``config``."""

    start_timeout_s = 120.0

    def __init__(
        self,
        broker_id: int,
        zk_connect: str,
        log_dir: Path,
        config: dict[str, object] | None = None,
        *,
        jvm: Sequence[str] = SMALL_JVM,
        port: int | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.log_dir = log_dir
        self.port = port or unused_port()
        self._properties = log_dir.with_name(log_dir.name + ".properties")
        self._settings: dict[str, object] = {
            **TEST_CONFIG,
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": log_dir,
            "zookeeper.connect": zk_connect,
            **(config or {}),
        }
        self.process = ManagedProcess(
            f"Apache Kafka {kafka_dist.KAFKA_VERSION} broker {broker_id}",
            lambda: kafka_dist.java_command(MAIN_CLASS, str(self._properties), jvm=jvm),
            log_dir.with_name(log_dir.name + ".log"),
        )

    def wait_ready(self) -> None:
        """Waits until it serves. While the znode of its dead session exists, restarts it, as
        systemd would.
        """
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            try:
                return super().wait_ready()
            except ProcessFailedError:
                if "NodeExists" not in self.process.log_tail(80) or time.monotonic() > deadline:
                    raise
                self.process.start()

    def _prepare(self) -> None:
        write_properties(self._properties, self._settings)
