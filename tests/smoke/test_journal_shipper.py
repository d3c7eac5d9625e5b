"""Where the hosts' journals are shipped: the service runs, and lines of every host arrive."""

import uuid

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer

from rig.wait import wait_until
from tests.smoke import by_ssh
from tests.smoke.conftest import client, clients_address, inventory, machine

TOPIC = "landline.journal"


def is_shipped(name):
    return inventory().variables(name).get("broker_journal_shipper_enabled", False)


@pytest.fixture(autouse=True)
def shipping(cluster):
    if not any(is_shipped(name) for name in cluster.hosts("brokers")):
        pytest.skip("the inventory ships no journals (broker_journal_shipper_enabled)")


def test_the_service_runs_and_starts_at_boot(host_name):
    service = machine(host_name).service("landline-journal-shipper")
    assert service.is_running
    assert service.is_enabled


def test_lines_of_every_host_arrive(cluster):
    wanted = {name for name in cluster.hosts("brokers") if is_shipped(name)}
    token = uuid.uuid4().hex
    for name in wanted:
        machine(name).check_output("logger -t landline-smoke %s", f"{token} {name}")
    seen = set()

    def note(text):
        seen.update(name for name in wanted if f"{token} {name}" in text)
        return seen == wanted

    first = cluster.brokers()[0]
    if first.tunnel:
        by_ssh.until_seen(by_ssh.settings(first.tunnel, clients_address(first), client()), TOPIC, note)
        return
    consumer = Consumer(client(**{"group.id": f"landline.smoke-{token}"}))

    def on_assign(_, partitions):
        for partition in partitions:
            partition.offset = OFFSET_BEGINNING
        consumer.assign(partitions)

    def all_seen():
        for message in consumer.consume(1000, timeout=1.0):
            note((message.value() or b"").decode(errors="replace"))
        return seen == wanted

    try:
        consumer.subscribe([TOPIC], on_assign=on_assign)
        wait_until(all_seen, 60)
    finally:
        consumer.close()
    assert seen == wanted
