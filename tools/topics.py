"""The command `topics`: a small client to inspect a cluster, and to create, write and read a topic.

    .venv/bin/topics list -b 127.0.0.1:9092
    .venv/bin/lab enter default -- topics read landline.journal --last 5

Without `-b` it uses the brokers of the Ansible inventory; for a lab, run it inside `lab enter`. The file that
LANDLINE_CLIENT_CONFIG names has TLS and the login, as client.properties on the hosts. It uses confluent-kafka, like
any other client. For more, use kcat or Kafka's own tools.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sparkctl.inventory import host_port
from tools.client_file import CLIENT_ENV, ClientFile
from tools.inventory import BOOTSTRAP_ENV, Inventory

TIMEOUT_S = 15.0
_UNREACHED = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MSG_TIMED_OUT}  # noqa: SLF001 (their names)

brokers = click.option(
    "-b",
    "--bootstrap-servers",
    "servers",
    envvar=BOOTSTRAP_ENV,
    help="host:port,…; the inventory's brokers unless given.",
)


class _Group(click.Group):
    """A command group that prints an error of a client or a broker as one line, with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            hint = "; does a broker listen there? -b says where" if problem.code() in _UNREACHED else ""
            raise click.ClickException(f"{problem.name()}: {problem.str()}{hint}") from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Lists, makes, writes and reads topics."""


@main.command("list")
@brokers
def list_topics(servers: str | None) -> None:
    """Show the brokers and the topics."""
    found = _admin(servers).list_topics(timeout=TIMEOUT_S)
    click.echo(f"cluster {found.cluster_id}")
    for broker in sorted(found.brokers.values(), key=lambda each: each.id):
        role = ", controller" if broker.id == found.controller_id else ""
        click.echo(f"broker {broker.id} at {host_port(str(broker.host), broker.port)}{role}")
    for name, topic in sorted(found.topics.items()):
        replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
        click.echo(f"topic {name}: {len(topic.partitions)} partitions, {replicas} replicas")


@main.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option("--replication-factor", type=click.IntRange(1), help="The brokers' default unless given.")
@brokers
def create(name: str, partitions: int, replication_factor: int | None, servers: str | None) -> None:
    """Make the topic NAME; one that is there stays as it is."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor or -1)
    admin = _admin(servers)  # kept in a variable: its destruction would end the request
    (made,) = admin.create_topics([new], operation_timeout=TIMEOUT_S).values()
    try:
        made.result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        click.echo(f"topic {name} is there already, nothing changed")
    else:
        click.echo(f"topic {name} is made")


@main.command()
@click.argument("name")
@brokers
def write(name: str, servers: str | None) -> None:
    """Write each line of standard input to the topic NAME as a record; returns when all are acknowledged."""
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({**_config(servers), "acks": "all", "delivery.timeout.ms": int(TIMEOUT_S * 1000)})
    count = 0
    for line in sys.stdin.buffer:
        count += 1
        while True:
            try:
                producer.produce(name, line.rstrip(b"\r\n"), on_delivery=told)
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
    producer.flush()
    if failed:
        raise KafkaException(failed[0])
    click.echo(f"{count} records are written to {name}")


@main.command()
@click.argument("name")
@click.option("--last", type=click.IntRange(1), help="Only so many of each partition, the newest.")
@brokers
def read(name: str, last: int | None, servers: str | None) -> None:
    """Print the records that the topic NAME has now, a line each."""
    for message in _records(_config(servers), name, last):
        click.echo(message.value() or b"")


def _records(config: dict[str, Any], name: str, last: int | None) -> Iterator[Message]:
    settings = {"group.id": "topics-read", "enable.auto.commit": False, "enable.partition.eof": True}
    with closing(Consumer({**config, **settings})) as consumer:
        topic = consumer.list_topics(name, timeout=TIMEOUT_S).topics[name]
        if topic.error is not None:
            raise KafkaException(topic.error)
        starts = []
        for partition in topic.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=TIMEOUT_S)
            starts.append(TopicPartition(name, partition, low if last is None else max(low, high - last)))
        consumer.assign(starts)
        unread = len(starts)
        while unread:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise click.ClickException(f"nothing came from {name} for {TIMEOUT_S:.0f} s")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (its name)
                unread -= 1
            else:
                raise KafkaException(error)


def _admin(servers: str | None) -> AdminClient:
    return AdminClient(_config(servers))


def _config(servers: str | None) -> dict[str, Any]:
    """Settings of every client. librdkafka's own log lines are disabled: what matters is raised as
    an error.
    """
    known = servers or Inventory.read().bootstrap()
    if not known:
        raise click.UsageError("the inventory's group brokers is empty: say by -b where brokers are")
    path = os.environ.get(CLIENT_ENV)
    login = ClientFile.parse(Path(path).read_text()).librdkafka() if path else {}
    return {
        **login,
        "bootstrap.servers": servers or login.get("bootstrap.servers") or known,
        "client.id": "topics",
        "socket.connection.setup.timeout.ms": 5000,
        "log_level": 0,
    }


if __name__ == "__main__":
    main(prog_name="topics")
