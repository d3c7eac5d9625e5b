"""A host joins and gets its share, is decommissioned, once more when it is off for good, and then takes the place of
one that died, all under load.

Four hosts of this module's own. MOVES_FIGURES=1 records the figures, from which tools/move_figures.py makes the table
in docs/operations.md.
"""

import json
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from rig.topics import create_topic, isr_sizes, partition_replicas
from rig.wait import wait_until
from rig.wire import cluster_view
from tests.support.deploying import ROOT, changed, make
from tests.support.inventories import OwnInventory
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tools.move_figures import Figure, write

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(2400)]

FILLED, PARTITIONS, FILLED_BYTES = "filled", 6, 4_000_000
THROTTLE = 2_000_000
SETTINGS = {
    "broker_journal_shipper_enabled": False,
    "broker_properties": {"offsets.topic.num.partitions": 6},
    "broker_move_round_s": 3,
    "landline_move_throttle": THROTTLE,
}
DEPLOY = ("--tags=zookeeper,broker", "--skip-tags=preflight")
BROKERS = ("--tags=broker", "--skip-tags=preflight")
MOVES_ALONE = ("--tags=always", "--skip-tags=preflight")
PLAN = LoadPlan(topics=1, partitions=3, records_per_s=200, seed=5)
DONE = re.compile(r"- (\d+) replicas, ([\d.]+) (\w+) to copy.*?- took ([\d.]+) s", re.DOTALL)
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Site:
    """The hosts, the load, and what each playbook cost the load."""

    def __init__(self, lab, inventory, load, bootstrap):
        self.lab, self.inventory, self.load, self.bootstrap = lab, inventory, load, bootstrap
        self.figures = []

    @contextmanager
    def measured(self, what):
        """The block puts what the playbook said into the list that it gets."""
        said, began = [], time.monotonic()
        yield said
        ended = time.monotonic()
        replicas, size, unit, took_s = DONE.search(said[0]).groups()
        gap_s = self.load.worst_gap_s(began, ended)
        copied = int(float(size) * UNITS[unit])
        self.figures.append(
            Figure(what, round(ended - began, 1), float(took_s), int(replicas), copied, round(gap_s, 2))
        )
        print(self.figures[-1])

    def address(self, name):
        return self.lab.host(name).address

    def brokers_of(self, topic):
        return sorted(broker for ids in partition_replicas(self.bootstrap, topic).values() for broker in ids)

    def throttles(self):
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        resources = [ConfigResource(ResourceType.TOPIC, FILLED), ConfigResource(ResourceType.BROKER, "1")]
        return {
            entry.name
            for future in admin.describe_configs(resources).values()
            for entry in future.result(30).values()
            if "throttled" in entry.name and not entry.is_default and entry.value
        }


def fill(bootstrap):
    create_topic(bootstrap, FILLED, PARTITIONS, 3, {"min.insync.replicas": "2"})
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "none"})
    for number in range(PARTITIONS * FILLED_BYTES // 100_000):
        producer.produce(FILLED, bytes(100_000), partition=number % PARTITIONS)
        producer.poll(0.01)
    assert producer.flush(120) == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("moves")
    make("wheelhouse")
    with lab_session("moves", hosts=4) as lab, lab.inside():
        inventory = OwnInventory(lab, directory, "h1", SETTINGS)
        inventory.brokers = {"h1": 1, "h2": 2, "h3": 3, "h4": 4}
        inventory.play("deploy.yml", *DEPLOY)
        # One deploy is enough: what joins later is a broker that was off while the topics were made.
        lab.run("h4", "systemctl stop landline-broker@4")
        bootstrap = ",".join(f"{lab.host(name).address}:{BROKER_PORT}" for name in ("h1", "h2", "h3"))
        wait_until(lambda: 4 not in cluster_view(lab.host("h1").address, BROKER_PORT).ports, 60)
        fill(bootstrap)
        with Load(bootstrap, PLAN, directory / "load", run="moved") as load:
            load.await_progress(100, timeout_s=120)
            yield Site(lab, inventory, load, bootstrap)


def test_a_host_that_joins_gets_its_share_though_the_play_is_interrupted(site):
    site.lab.run("h4", "systemctl start landline-broker@4")
    wait_until(
        lambda: 4 in cluster_view(site.address("h1"), BROKER_PORT).ports, 120, what="the host has joined"
    )
    checked = site.inventory.play("playbooks/rebalance.yml", "--check")
    assert re.search(r"replicas, [\d.]+ MiB to copy, about \d+ s at 1.9 MiB/s per broker", checked)
    assert 4 not in site.brokers_of(FILLED)
    with site.measured("rebalance") as said:
        # One round: between two of them nobody is there to take anything back.
        argv = site.inventory.argv("playbooks/rebalance.yml", "-e", "broker_move_round_s=120")
        process = subprocess.Popen(argv, cwd=ROOT, start_new_session=True)
        try:
            wait_until(site.throttles, 240, what="it moves partitions")
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
        wait_until(
            lambda: site.throttles() == set(), 60, what="what was interrupted takes its throttles back"
        )
        said.append(site.inventory.play("playbooks/rebalance.yml"))
    assert site.throttles() == set()
    assert site.brokers_of(FILLED).count(4) >= PARTITIONS * 3 // 4 - 1
    assert set(changed(site.inventory.play("playbooks/rebalance.yml")).values()) == {0}


def test_a_host_that_is_decommissioned_is_emptied_leaves_the_cluster_and_has_nothing_left(site):
    refused = site.inventory.play("playbooks/decommission.yml", "-e decommission_host=h9", fails=True)
    assert "decommission_host is h9: give one of h1, h2, h3, h4" in " ".join(refused.split())
    refused = site.inventory.play(
        "playbooks/decommission.yml", "--limit=h4", "-e decommission_host=h4", fails=True
    )
    assert "no other host has looked whether h4 is empty. Run this without --limit" in " ".join(
        refused.split()
    )
    assert 4 in cluster_view(site.address("h1"), BROKER_PORT).ports
    checked = site.inventory.play("playbooks/decommission.yml", "--check", "-e decommission_host=h4")
    assert "MiB to copy" in checked
    assert 4 in site.brokers_of(FILLED)
    site.lab.run("h4", "mkdir -p /var/lib/landline-2/broker-4/filled-0")
    argument = json.dumps(
        {"decommission_host": "h4", "broker_data_dirs": ["/var/lib/landline", "/var/lib/landline-2"]}
    )
    # A second one of the same host, by the same user on the same machine, is another run.
    slow = ("-e", "broker_move_round_s=120", "-e", "landline_move_throttle=200000")
    first = subprocess.Popen(
        site.inventory.argv("playbooks/decommission.yml", "-e", argument, *slow),
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        wait_until(site.throttles, 240, what="it moves partitions")
        refused = site.inventory.play("playbooks/decommission.yml", "-e", argument, fails=True)
        assert re.search(
            r"Nothing was touched: \S+ \(decommission h4, run \w+\) has the turn to move partitions since .*Z, and "
            r"goes on as process \d+ of this machine",
            " ".join(refused.split()),
        )
        assert first.poll() is None
        assert site.throttles() != set()
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    with site.measured("decommission") as said:
        said.append(site.inventory.play("playbooks/decommission.yml", "-e", argument))
    assert 4 not in site.brokers_of(FILLED)
    assert 4 not in cluster_view(site.address("h1"), BROKER_PORT).ports
    left = "ls /etc/landline /var/lib/landline* /opt/landline; ls /etc/systemd/system | grep landline"
    assert "broker" not in site.lab.run("h4", left, check=False).stdout
    again = site.inventory.play("playbooks/decommission.yml", "-e", argument)
    assert set(changed(again).values()) == {0}
    del site.inventory.brokers["h4"]
    refused = site.inventory.play("playbooks/decommission.yml", "-e decommission_host=h3", fails=True)
    assert "2 brokers would remain (1, 2), and topics have more replicas" in " ".join(refused.split())
    assert 3 in cluster_view(site.address("h1"), BROKER_PORT).ports


def interrupted_after_the_stop(site):
    """A decommission of h4 that ends when the broker is kept from starting."""
    decommission = site.inventory.argv("playbooks/decommission.yml", "-e", "decommission_host=h4")
    process = subprocess.Popen(decommission, cwd=ROOT, start_new_session=True)
    bar = "/etc/systemd/system/landline-broker@4.service.d/decommission.conf"
    try:
        wait_until(lambda: bar in site.lab.run("h4", f"ls {bar}", check=False).stdout, 240, what="it stops 4")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # What it was doing on the host may have ended with it, or not.
    site.lab.run("h4", "systemctl daemon-reload; systemctl stop landline-broker@4")


def test_nothing_starts_a_broker_whose_decommission_ended_midway_until_that_is_finished_or_given_up(site):
    site.inventory.brokers["h4"] = 4
    site.inventory.play("deploy.yml", *BROKERS)
    wait_until(lambda: 4 in cluster_view(site.address("h1"), BROKER_PORT).ports, 120, what="it is back")
    interrupted_after_the_stop(site)
    site.lab.run("h4", "systemctl start landline-broker@4", check=False)
    status = site.lab.run("h4", "systemctl status landline-broker@4", check=False).stdout
    assert "start assertion failed" in status
    for book, *arguments in (("deploy.yml", *BROKERS), ("playbooks/restart.yml",), ("playbooks/reboot.yml",)):
        refused = " ".join(site.inventory.play(book, *arguments, fails=True).split())
        assert re.search(
            r"h4: \S+ \(decommission h4, run \w+\) is removing landline-broker@4.service since .*Z; that run ended "
            r"before it was done. Nothing was touched here. Finish it \(make decommission HOST=h4\), or",
            refused,
        )
    assert 4 not in cluster_view(site.address("h1"), BROKER_PORT).ports
    site.inventory.play("deploy.yml", *BROKERS, "-e decommission_abandoned=h4")
    wait_until(lambda: 4 in cluster_view(site.address("h1"), BROKER_PORT).ports, 120, what="it is back")
    interrupted_after_the_stop(site)
    site.inventory.play("playbooks/decommission.yml", "-e decommission_host=h4")
    left = "ls /etc/landline /var/lib/landline* /opt/landline; ls /etc/systemd/system | grep landline"
    assert "broker" not in site.lab.run("h4", left, check=False).stdout
    del site.inventory.brokers["h4"]


def test_a_host_that_is_off_for_good_is_decommissioned_without_it(site):
    site.inventory.brokers["h4"] = 4
    site.inventory.play("deploy.yml", *BROKERS)
    wait_until(lambda: 4 in cluster_view(site.address("h1"), BROKER_PORT).ports, 120, what="it is back")
    site.inventory.play("playbooks/rebalance.yml")
    assert 4 in site.brokers_of(FILLED)
    # So that it can be wiped when it boots, before its broker starts.
    site.lab.run("h4", "systemctl disable landline-broker@4")
    site.lab.faults.power_loss("h4")
    wait_until(lambda: 4 not in cluster_view(site.address("h1"), BROKER_PORT).ports, 60)
    decommission = ("playbooks/decommission.yml", "-e decommission_host=h4")
    refused = " ".join(site.inventory.play(*decommission, fails=True).split())
    assert "h4 is not reached, and nothing was changed: " in refused
    assert "If it is off for good: -e decommission_gone=true moves everything away without it" in refused
    assert 4 in site.brokers_of(FILLED)
    said = site.inventory.play(*decommission, "-e decommission_gone=true")
    assert "take it out of the inventory. If it returns, wipe its disks" in " ".join(said.split())
    assert 4 not in site.brokers_of(FILLED)
    assert set(isr_sizes(site.bootstrap, FILLED).values()) == {3}
    assert site.throttles() == set()
    again = site.inventory.play(*decommission, "-e decommission_gone=true")
    assert set(changed(again).values()) == {0}
    site.lab.faults.boot("h4")
    refused = site.inventory.play(*decommission, "-e decommission_gone=true", fails=True)
    assert "decommission_gone says that h4 is gone for good, but it answers" in " ".join(refused.split())
    units = "/etc/systemd/system/landline-broker@*"
    site.lab.run(
        "h4", f"rm -rf {units} /etc/landline /opt/landline /var/lib/landline/*; systemctl daemon-reload"
    )
    del site.inventory.brokers["h4"]


def test_a_new_machine_takes_the_place_of_a_dead_host_and_nothing_was_lost(site, tmp_path):
    site.inventory.brokers = {"h1": 1, "h2": 2, "h4": 3}
    said = site.inventory.play("playbooks/replace.yml", *BROKERS, "-e replace_host=h4", fails=True)
    assert "Broker 3 runs, and not on h4" in " ".join(said.split())
    site.lab.faults.power_loss("h3")
    wait_until(lambda: 3 not in cluster_view(site.address("h1"), BROKER_PORT).ports, 60)
    said = site.inventory.play(
        "playbooks/replace.yml", *BROKERS, "--limit=h4", "-e replace_host=h4", fails=True
    )
    assert "the other brokers have to be asked what h4 is to have. Run this without --limit" in " ".join(
        said.split()
    )
    checked = site.inventory.play("playbooks/replace.yml", *BROKERS, "--check", "-e replace_host=h4")
    assert re.search(r"replicas, [\d.]+ MiB to copy", checked)
    assert site.throttles() == set()
    assert "landline-broker" not in site.lab.run("h4", "ls /etc/systemd/system").stdout
    with site.measured("replace") as told:
        told.append(site.inventory.play("playbooks/replace.yml", *BROKERS, "-e replace_host=h4"))
    assert set(isr_sizes(site.bootstrap, FILLED).values()) == {3}
    assert site.throttles() == set()
    again = site.inventory.play("playbooks/replace.yml", *MOVES_ALONE, "-e replace_host=h4")
    assert set(changed(again).values()) == {0}
    site.load.await_progress(100, timeout_s=120)
    history = site.load.finish(timeout_s=240)
    places = {
        broker: site.lab.files.root(site.lab.host(name)) / f"var/lib/landline/broker-{broker}"
        for name, broker in site.inventory.brokers.items()
    }
    assert not (found := findings(history, places)), summary(found)
    assert site.load.failed() == 0
    if os.environ.get("MOVES_FIGURES"):
        about = [
            "4 lab hosts that share 2 cores with other work",
            f"throttle: {THROTTLE / 2**20:.1f} MiB/s per broker",
            f"load: {PLAN.records_per_s:g} records a second; {site.load.acked()} acknowledged, 0 lost, 0 anomalies",
        ]
        write(about, site.figures)
