"""Kafka's command-line tools of 3.9.1 print with Landline what they print with Kafka: the same commands, in the same
order, with one broker of each. Compared are exit codes and printed lines; ports, ids, times and sizes are masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At

from rig.brokers import BrokerProcess
from rig.kafka_dist import TOOL_JVM, java_command, run_tool
from rig.processes import ManagedProcess
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.kafka_jvm import KafkaJvm, kafka_jvm
from tests.support.peers import Peer, PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

TIMEOUT_S = 60
TOOLS = "org.apache.kafka.tools."
TOPICS = TOOLS + "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
OFFSETS = TOOLS + "GetOffsetShell"
TRANSACTIONS = TOOLS + "TransactionsCommand"
REASSIGN = TOOLS + "reassign.ReassignPartitionsCommand"
PRODUCER = TOOLS + "VerifiableProducer"
"""Tells what is acknowledged when its JVM ends, so it has one of its own."""
_MASKS = (
    # Only Landline has KIP-848, and only Kafka Envelope: docs/differences.md.
    (re.compile(r"(?:ConsumerGroup(?:Heartbeat|Describe)|Envelope)\(.*"), ""),
    (re.compile(r"\b1[6-9]\d{11}\b"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{3}"), "TIME"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\bTIME\s+\d+\b"), "TIME SPAN"),
    (re.compile(r"(?<=command : ).*"), "TEXT"),  # an error's: of the broker's own words
    (re.compile(r'"size":\d+'), '"size":SIZE'),
    (re.compile(r'"(?:avg_throughput|target_throughput)":[\d.]+'), '"throughput":RATE'),
)


@dataclass
class Side:
    """One broker, and what the tools printed with it."""

    broker: BrokerProcess
    jvm: KafkaJvm
    root: Path

    def run(self, main_class: str, words: str) -> tuple[int, list[str]]:
        """``@`` begins the name of a file of ours, and ``%`` is where the broker's address is, if not first."""
        own = [str(self.root / word[1:]) if word.startswith("@") else word for word in words.split()]
        if "%" not in own:
            own = ["--bootstrap-server", "%", *own]
        own = [self.broker.bootstrap if word == "%" else word for word in own]
        if main_class == PRODUCER:
            done = run_tool(main_class, *own)
            return done.returncode, self.masked(done.stdout)
        ran = self.jvm.run(main_class, *own)
        return ran.code, self.masked(ran.printed)

    def masked(self, text: str) -> list[str]:
        text = text.replace(str(self.broker.log_dir), "DIR")
        for pattern, name in _MASKS:
            text = pattern.sub(name, text)
        text = re.sub(rf"\b{self.broker.port}\b", "PORT", text)
        # Columns are as wide as what they hold, and tables are in any order.
        return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


@pytest.fixture(scope="module")
def sides(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    root = tmp_path_factory.mktemp("tools")
    (root / "delete.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "one", "partition": 0, "offset": 5}]})
    )
    rows = [{"topic": "one", "partition": 0, "replicas": [1]}]
    (root / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows}))
    (root / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "one"}]}))
    with ExitStack() as stack:
        brokers = [
            Peer(kind, zookeeper, root / kind.value).cluster() for kind in (PeerKind.KAFKA, PeerKind.LANDLINE)
        ]
        kafka, landline = (stack.enter_context(cluster).brokers[1] for cluster in brokers)
        jvm = stack.enter_context(kafka_jvm(root / "jvm.log"))
        for broker in (kafka, landline):
            _transactions(broker.bootstrap)
        yield Side(kafka, jvm, root), Side(landline, jvm, root)
        jvm.kill()


def _transactions(bootstrap: str) -> None:
    """A topic ``txn`` with a committed transaction and an open one, whose producer is gone; and a group's offset."""
    create_topic(bootstrap, "txn", 1)
    for name in ("done", "open"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 900_000,  # it stays open until a tool ends it, however slow they all are
                "linger.ms": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("txn", b"v")
        assert producer.flush(TIMEOUT_S) == 0
        if name == "done":
            producer.commit_transaction(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copies"})
    consumer.commit(offsets=[At("txn", 0, 1)], asynchronous=False)
    consumer.close()


COMMANDS: Sequence[tuple[str, str]] = (
    (TOPICS, "--create --topic t --partitions 3 --replication-factor 1 --config retention.ms=98765"),
    (TOPICS, "--create --topic one --partitions 1 --replication-factor 1"),
    (TOPICS, "--create --topic t"),
    (TOPICS, "--create --topic many --replication-factor 3"),
    (TOPICS, "--create --topic bad --config retention.ms=soon"),
    (TOPICS, "--alter --topic t --partitions 4"),
    (TOPICS, "--alter --topic t --partitions 2"),
    (TOPICS, "--describe --topic t"),
    (TOPICS, "--describe --topic nobody"),
    (TOPICS, "--list"),
    (CONFIGS, "--alter --entity-type topics --entity-name t --add-config cleanup.policy=[compact,delete]"),
    (CONFIGS, "--alter --entity-type topics --entity-name t --add-config retention.ms=soon"),
    (CONFIGS, "--alter --entity-type topics --entity-name nobody --add-config retention.ms=1"),
    (CONFIGS, "--describe --entity-type topics --entity-name t"),
    (CONFIGS, "--describe --entity-type topics --entity-name t --all"),
    (CONFIGS, "--alter --entity-type topics --entity-name t --delete-config retention.ms"),
    (CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=500000"),
    (CONFIGS, "--alter --entity-type brokers --entity-name 1 --add-config broker.id=2"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1"),
    (CONFIGS, "--alter --entity-type clients --entity-name c --add-config producer_byte_rate=1000"),
    (CONFIGS, "--describe --entity-type clients"),
    (PRODUCER, "--topic one --max-messages 20"),
    (OFFSETS, "--topic one"),
    (OFFSETS, "--topic one --time earliest"),
    (OFFSETS, "--topic-partitions txn:0 --time -1"),
    (OFFSETS, "--topic nobody"),
    (
        TOOLS + "VerifiableConsumer",
        "--topic one --group-id verified --max-messages 20 --reset-policy earliest",
    ),
    (TOOLS + "DeleteRecordsCommand", "--offset-json-file @delete.json"),
    (OFFSETS, "--topic one --time -2"),
    (GROUPS, "--list"),
    (GROUPS, "--list --state"),
    (GROUPS, "--describe --group verified"),
    (GROUPS, "--describe --group verified --state"),
    (GROUPS, "--describe --group verified --members"),
    (GROUPS, "--describe --group nobody"),
    (GROUPS, "--reset-offsets --group verified --topic one --to-earliest --dry-run"),
    (GROUPS, "--reset-offsets --group verified --topic one --to-offset 7 --execute"),
    (GROUPS, "--describe --all-groups"),
    (GROUPS, "--delete-offsets --group verified --topic one"),
    (GROUPS, "--delete-offsets --group verified --topic t"),
    (GROUPS, "--delete --group verified"),
    (GROUPS, "--delete --group nobody"),
    (TRANSACTIONS, "list"),
    (TRANSACTIONS, "describe --transactional-id done"),
    (TRANSACTIONS, "describe --transactional-id nobody"),
    (TRANSACTIONS, "describe-producers --topic txn --partition 0"),
    (TRANSACTIONS, "find-hanging --broker-id 1"),
    (TRANSACTIONS, "abort --topic txn --partition 0 --start-offset 2"),
    (TRANSACTIONS, "abort --topic txn --partition 0 --start-offset 9"),
    (TOOLS + "LogDirsCommand", "--describe --topic-list t,one"),
    (TOOLS + "LogDirsCommand", "--describe --broker-list 9"),
    (REASSIGN, "--generate --topics-to-move-json-file @topics.json --broker-list 1"),
    (REASSIGN, "--execute --reassignment-json-file @plan.json"),
    (REASSIGN, "--verify --reassignment-json-file @plan.json"),
    (REASSIGN, "--list"),
    (TOOLS + "LeaderElectionCommand", "--election-type preferred --topic one --partition 0"),
    (TOOLS + "StreamsResetter", "--application-id copies --input-topics txn --force"),
    (TOOLS + "ClusterTool", "cluster-id --bootstrap-server %"),
    (TOOLS + "FeatureCommand", "describe"),
    (TOOLS + "MetadataQuorumCommand", "describe --status"),
    ("kafka.admin.AclCommand", "--list"),
    ("kafka.admin.BrokerApiVersionsCommand", ""),
    (TOPICS, "--delete --topic t"),
    (TOPICS, "--delete --topic nobody"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: f"{each[0].rpartition('.')[2]} {each[1]}")
def test_a_tool_prints_the_same(command: tuple[str, str], sides: tuple[Side, Side]) -> None:
    of_kafka, of_landline = (side.run(*command) for side in sides)
    different = {*of_kafka[1]} ^ {*of_landline[1]}
    assert of_landline == of_kafka, "\n".join(sorted(different))


def test_replica_verification_prints_the_same(sides: tuple[Side, Side]) -> None:
    told = []
    for side in sides:
        command = java_command(
            TOOLS + "ReplicaVerificationTool",
            *("--broker-list", side.broker.bootstrap, "--topics-include", "one"),
            *("--report-interval-ms", "100"),
            jvm=TOOL_JVM,
            log_target="System.err",
        )
        tool = ManagedProcess("replica verification", lambda: command, side.broker.log_dir.with_name("v.log"))  # noqa: B023
        tool.start()
        try:
            wait_until(lambda: "max lag is 0" in tool.log_text(), TIMEOUT_S, what=tool.log_text)  # noqa: B023
        finally:
            tool.kill()
        told.append(set(side.masked(tool.log_text())))
    assert told[1] == told[0]
