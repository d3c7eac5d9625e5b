"""The journal shipper against real brokers: nothing lost, nothing out of order, through kills on both sides."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rig.brokers import Cluster
from rig.processes import ManagedProcess
from rig.topics import all_records
from rig.wait import wait_until
from tests.support.journal_shipper import SHIPPER, FileJournal
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "landline.journal"


@pytest.fixture
def cluster(peer: Peer) -> Iterator[Cluster]:
    with peer.cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        # A broker answers before the controller has told it of itself, and librdkafka does not ask again soon.
        wait_until(lambda: admin.list_topics(timeout=5).controller_id >= 0, timeout=60, what="a controller")
        admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])[TOPIC].result(
            timeout=60
        )
        yield cluster


class Shipping:
    """The shipper over a journal in a file, with its state directory and its notify socket."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.journal = FileJournal(directory)
        self._directory = directory
        config = directory / "shipper.properties"
        settings = {
            "bootstrap.servers": bootstrap,
            "journalctl": self.journal.journalctl,
            "max.unacked.records": 200,
            "delivery.timeout.ms": 10000,
            "own.unit": "shipper.service",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(directory / "notify"))
        self.notify.settimeout(60)
        self.process = ManagedProcess(
            "journal_shipper",
            lambda: [sys.executable, str(SHIPPER), str(config)],
            directory / "shipper.log",
            env={"STATE_DIRECTORY": str(directory), "NOTIFY_SOCKET": str(directory / "notify")},
        )

    def cursor(self) -> str:
        path = self._directory / "cursor"
        return path.read_text().strip() if path.exists() else ""

    def wait_cursor(self, cursor: str) -> None:
        wait_until(lambda: self.cursor() == cursor, timeout=90, what=self.process.log_tail)


@pytest.fixture
def shipping(cluster: Cluster, tmp_path: Path) -> Iterator[Shipping]:
    shipping = Shipping(tmp_path, cluster.bootstrap)
    yield shipping
    shipping.process.kill()
    shipping.notify.close()


def shipped(cluster: Cluster) -> list[tuple[bytes, dict[str, Any]]]:
    """Key and entry of every record, in the order of the one partition that the key chooses."""
    found = all_records(cluster.bootstrap, TOPIC)
    assert len({message.partition() for message in found}) <= 1
    return [(message.key(), json.loads(message.value())) for message in found]


def cursors(cluster: Cluster) -> list[str]:
    return [entry["__CURSOR"] for _, entry in shipped(cluster)]


def without_copies(found: list[str]) -> list[str]:
    """Each cursor at its first place."""
    return list(dict.fromkeys(found))


def test_entries_arrive_as_they_were_with_the_host_as_key(cluster: Cluster, shipping: Shipping) -> None:
    written = shipping.journal.write(2500, PRIORITY="3")
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    found = shipped(cluster)
    assert [entry["__CURSOR"] for _, entry in found] == written
    assert {key for key, _ in found} == {socket.gethostname().encode()}
    assert found[0][1]["MESSAGE"] == "message 1"
    assert found[0][1]["PRIORITY"] == "3"


def test_own_entries_stay_at_home(cluster: Cluster, shipping: Shipping) -> None:
    before = shipping.journal.write(3)
    shipping.journal.write(50, _SYSTEMD_UNIT="shipper.service")
    after = shipping.journal.write(3)
    own = shipping.journal.write(1, _SYSTEMD_UNIT="shipper.service")
    shipping.process.start()
    shipping.wait_cursor(own[-1])
    assert cursors(cluster) == before + after


def test_killed_shipper_goes_on_from_its_cursor_and_loses_nothing(
    cluster: Cluster, shipping: Shipping
) -> None:
    written = shipping.journal.write(20_000)
    shipping.process.start()
    wait_until(shipping.cursor, timeout=60, interval=0.01, what=shipping.process.log_tail)
    shipping.process.kill()
    assert shipping.cursor() != written[-1], "all was shipped before the kill"
    written += shipping.journal.write(100)
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    assert without_copies(cursors(cluster)) == written


def test_stopped_shipper_makes_no_copies(cluster: Cluster, shipping: Shipping) -> None:
    written = shipping.journal.write(500)
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    written += shipping.journal.write(500)
    assert shipping.process.stop() == 0, shipping.process.log_tail()
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    assert cursors(cluster) == written


def test_last_words_before_a_reboot_are_shipped_after_it(cluster: Cluster, shipping: Shipping) -> None:
    written = shipping.journal.write(10)
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    assert shipping.process.stop() == 0
    written += shipping.journal.write(10)
    shipping.journal.write(5, _MACHINE_ID="0" * 32)
    written += shipping.journal.write(10, _BOOT_ID="f" * 32)
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    assert cursors(cluster) == written


def test_first_start_begins_with_this_boot(cluster: Cluster, shipping: Shipping) -> None:
    shipping.journal.write(10, _BOOT_ID="e" * 32)
    written = shipping.journal.write(10)
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    assert cursors(cluster) == written


def test_shipper_waits_for_absent_brokers_and_then_ships_all(cluster: Cluster, shipping: Shipping) -> None:
    (broker,) = cluster.brokers.values()
    written = shipping.journal.write(300)
    shipping.process.start()
    shipping.wait_cursor(written[-1])
    broker.kill()
    written += shipping.journal.write(5000)
    wait_until(
        lambda: "shipping_interrupted" in shipping.process.log_text(),
        timeout=90,
        what=shipping.process.log_tail,
    )
    assert shipping.process.rss_mb() < 80, "the memory follows the journal"
    broker.start()
    shipping.wait_cursor(written[-1])
    assert without_copies(cursors(cluster)) == written


def test_shipper_is_ready_before_any_broker_and_says_what_it_waits_for(tmp_path: Path) -> None:
    shipping = Shipping(tmp_path, "127.0.0.1:9")
    shipping.journal.write(1)
    told = ""
    shipping.process.start()
    try:
        while "trying" not in told and "to try again" not in told:
            told += shipping.notify.recv(4096).decode() + "\n"
    finally:
        exit_code = shipping.process.stop()
        shipping.notify.close()
    assert told.startswith("READY=1\n")
    assert "no broker at 127.0.0.1:9" in told
    assert exit_code == 0


def test_refused_configuration_ends_with_a_line_and_without_restart(tmp_path: Path) -> None:
    config = tmp_path / "bad.properties"
    config.write_text("bootstrap.servers=b:9092\ntpoic=x\n")
    process = ManagedProcess(
        "journal_shipper",
        lambda: [sys.executable, str(SHIPPER), str(config)],
        tmp_path / "log",
        env=dict(os.environ),
    )
    process.start()
    wait_until(lambda: not process.running, timeout=30)
    assert process.exit_code == 78
    assert "unknown key 'tpoic'" in process.log_text()
