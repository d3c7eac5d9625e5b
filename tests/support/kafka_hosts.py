"""Apache Kafka on a lab's hosts, in the layout of its tarball, run by a unit as its users write it."""

from __future__ import annotations

from lab import Bind, Lab
from rig.kafka_dist import KAFKA_VERSION, SCALA_VERSION, jar_dir
from rig.wait import wait_until
from rig.wire import answers_api_versions

HOME = f"/opt/kafka_{SCALA_VERSION}-{KAFKA_VERSION}"
CONFIG = "/opt/kafka/config/server.properties"
LOG_DIRS = ("/var/lib/kafka/a", "/var/lib/kafka/b")
PORT = 9092
# In place of the tarball's script of this name.
START = """\
#!/bin/sh
libs=$(dirname "$0")/../libs
exec java $KAFKA_HEAP_OPTS -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dlandline.log.level=WARN \
    -Dlandline.log.target=System.out -cp "$libs:$libs/*" kafka.Kafka "$@"
"""
UNIT = f"""\
[Unit]
Description=Apache Kafka
After=network.target
[Service]
User=kafka
Environment=KAFKA_HEAP_OPTS=-Xmx256m
ExecStart=/opt/kafka/bin/kafka-server-start.sh {CONFIG}
SuccessExitStatus=143
[Install]
WantedBy=multi-user.target
"""
PROPERTIES = """\
# As users have it.
broker.id={id}
listeners=PLAINTEXT://{address}:{port}
log.dirs={log_dirs}
zookeeper.connect={zookeeper}/kafka
zookeeper.session.timeout.ms = 6000
num.network.threads=2
log.retention.hours=72
min.insync.replicas=2
default.replication.factor=3
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
"""
INSTALL = """
useradd --system --no-create-home kafka && mkdir -p {home}/bin {home}/config {dirs} && ln -s {home} /opt/kafka
chown -R kafka: {dirs}
cat >{home}/bin/kafka-server-start.sh && chmod +x {home}/bin/kafka-server-start.sh
"""


def kafka_bind() -> Bind:
    """The jars, for the lab's hosts."""
    return Bind(str(jar_dir()), f"{HOME}/libs")


def install_kafka(lab: Lab) -> None:
    """Installs and starts a broker on each host; its id is the host's number. ZooKeeper must run on all."""
    zookeeper = ",".join(f"{host.address}:2181" for host in lab.hosts)
    for host in lab.hosts:
        lab.run(host.name, INSTALL.format(home=HOME, dirs=" ".join(LOG_DIRS)), stdin=START)
        properties = PROPERTIES.format(
            id=host.index,
            address=host.address,
            port=PORT,
            log_dirs=",".join(LOG_DIRS),
            zookeeper=zookeeper,
        )
        lab.run(host.name, f"cat >{CONFIG}", stdin=properties)
        lab.run(host.name, "cat >/etc/systemd/system/kafka.service", stdin=UNIT)
        lab.run(host.name, "systemctl daemon-reload && systemctl enable --now --no-block --quiet kafka")
    for host in lab.hosts:
        wait_until(lambda address=host.address: answers_api_versions(address, PORT), 180, what="Kafka serves")
