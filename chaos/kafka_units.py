"""Apache Kafka 3.9.1 as systemd units on a lab's hosts, to be broken like Landline; its jars are bound
to /opt/kafka.

The configuration is what the broker role gives Landline, the JVM's flags are those of Kafka's own start
script, and systemd restarts it as it restarts Landline.
"""

from __future__ import annotations

from collections.abc import Mapping

from chaos.cluster import Product, zookeeper_connect
from lab import Host, Lab
from rig.kafka_broker import DEFAULT_JVM, MAIN_CLASS

JARS = "/opt/kafka"
KAFKA = Product("Apache Kafka 3.9.1", "kafka-broker@{id}.service", 9192, "/kafka", "landline/kafka-{id}")

_UNIT = """\
[Unit]
Description=Apache Kafka broker %i
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User=landline
ExecStart=/usr/bin/java {jvm} -Dlandline.log.level=INFO -Dlandline.log.target=System.out \\
    -cp {jars}:{jars}/* {main} /etc/kafka/broker-%i.properties
SuccessExitStatus=143
Restart=always
RestartSec=1
TimeoutStopSec=120
LimitNOFILE=20000
StateDirectory=landline/kafka-%i

[Install]
WantedBy=multi-user.target
"""


def install(lab: Lab) -> None:
    """Writes unit and configuration on every host; starts nothing."""
    for host in lab.hosts:
        root = lab.files.root(host)
        unit = _UNIT.format(jvm=" ".join(DEFAULT_JVM), jars=JARS, main=MAIN_CLASS)
        (root / "etc/systemd/system/kafka-broker@.service").write_text(unit)
        (root / "etc/kafka").mkdir(exist_ok=True)
        lines = [f"{key}={value}" for key, value in sorted(_properties(lab, host).items())]
        (root / f"etc/kafka/broker-{host.index}.properties").write_text("\n".join(lines) + "\n")
        lab.run_on_console(host.name, ["systemctl", "daemon-reload"])


def _properties(lab: Lab, host: Host) -> Mapping[str, object]:
    return {
        "broker.id": host.index,
        "broker.rack": host.name,
        "listeners": f"PLAINTEXT://0.0.0.0:{KAFKA.port}",
        "advertised.listeners": f"PLAINTEXT://{host.address}:{KAFKA.port}",
        "log.dirs": f"/var/lib/{KAFKA.data_dir.format(id=host.index)}",
        "zookeeper.connect": zookeeper_connect(lab, KAFKA.chroot),
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "offsets.topic.replication.factor": 3,
    }
