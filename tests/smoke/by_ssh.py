"""Clients of Kafka and ZooKeeper by ssh, for a cluster whose ports this machine does not reach.

librdkafka makes its connections itself; kafka-python and kazoo can be given theirs.
"""

from __future__ import annotations

import ssl
import time
import uuid
from contextlib import closing

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.net.inet import KafkaNetSocket
from kazoo.handlers.threading import SequentialThreadingHandler

from rig.wait import wait_until

SCHEME = "landline-ssh"
TIMEOUT_MS = 30_000


class _BySsh(KafkaNetSocket):
    """How kafka-python connects to a broker if its `proxy_url` begins with SCHEME."""

    SCHEMES = (SCHEME,)
    tunnel = None

    def dns_lookup(self, host, port, raise_error=False):
        """The host's names are resolved there."""
        return [(None, None, None, "", (host, port))]

    async def connect(self, net, addrinfo, socket_options=(), timeout_at=None):
        end = _BySsh.tunnel.connect(addrinfo[-1])
        end.setblocking(False)
        return end


class KazooHandler(SequentialThreadingHandler):
    """How kazoo connects to a ZooKeeper server by ssh."""

    def __init__(self, tunnel):
        super().__init__()
        self._tunnel = tunnel

    def create_connection(self, address, timeout=None, **_):
        return self._tunnel.connect(address, timeout)


def settings(tunnel, bootstrap, known):
    """kafka-python's settings; `known` are those of librdkafka."""
    _BySsh.tunnel = tunnel
    found = {
        "bootstrap_servers": bootstrap,
        "proxy_url": f"{SCHEME}://",
        "security_protocol": known.get("security.protocol", "PLAINTEXT"),
    }
    if "ssl.ca.pem" in known:
        pem = known["ssl.ca.pem"].replace("\\n", "\n")
        found["ssl_context"] = ssl.create_default_context(cadata=pem)
    if "sasl.username" in known:
        found |= {
            "sasl_mechanism": known["sasl.mechanisms"],
            "sasl_plain_username": known["sasl.username"],
            "sasl_plain_password": known["sasl.password"],
        }
    return found


def round_trip(given, broker_id, replicas):
    """A record by a topic that this broker leads: what was written, and what was read."""
    name = f"landline.smoke-{uuid.uuid4().hex[:8]}"
    with closing(KafkaAdminClient(**given)) as admin:
        admin.create_topics({name: {"assignments": {0: replicas}}}, timeout_ms=TIMEOUT_MS)
        try:
            partition = TopicPartition(name, 0)
            wait_until(lambda: _leader(admin, name) == broker_id, 20, what="leadership")
            value = uuid.uuid4().bytes
            with closing(KafkaProducer(**given, acks="all")) as producer:
                there = producer.send(name, value, partition=0).get(30)
            with closing(KafkaConsumer(**given, enable_auto_commit=False)) as consumer:
                consumer.assign([partition])
                consumer.seek(partition, there.offset)
                return value, _first(consumer).value
        finally:
            admin.delete_topics([name], timeout_ms=TIMEOUT_MS)


def _leader(admin, name):
    (topic,) = admin.describe_topics([name])
    found = topic["partitions"]
    return found[0]["leader_id"] if found else None


def _first(consumer):
    return next(record for polled in _polls(consumer) for records in polled.values() for record in records)


def _polls(consumer):
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while time.monotonic() < deadline:
        yield consumer.poll(timeout_ms=1000)
    raise TimeoutError("no record came")


def until_seen(given, topic, is_enough):
    """Reads all records of a topic until `is_enough`, which is given the text of each."""
    with closing(KafkaConsumer(topic, **given, auto_offset_reset="earliest", group_id=None)) as consumer:
        for polled in _polls(consumer):
            for records in polled.values():
                for record in records:
                    if is_enough((record.value or b"").decode(errors="replace")):
                        return
