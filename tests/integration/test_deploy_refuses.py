"""What a deployment refuses before it touches a host, with a real ZooKeeper: the plays run on this machine as
dry runs, of which the looks are real.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

ROOT = Path(__file__).parents[2]
PARTS = "--tags=broker_configure,broker_service"
KAFKA = {"endpoints": ["PLAINTEXT://kafka-7:9092"]}
OURS = {
    "endpoints": ["PLAINTEXT://a:9092", "BROKER://a:9091"],
    "landline_inter_broker_listener": "BROKER",
}
ONE_LISTENER = {"broker_internal_port": 0}
WITHOUT_LISTENER = (
    "Brokers speak to each other by the listener BROKER, which broker_internal_port=0 takes away"
)
STRANGERS = (
    "Nothing was touched. ZooKeeper has brokers that are not in the inventory and have no listener BROKER, by which "
    "the inventory's are to speak to each other (broker_internal_port): broker 7 at PLAINTEXT://kafka-7:9092"
)


class Hosts:
    """Two hosts of brokers, both this machine, with directories of their own."""

    def __init__(self, directory, zookeeper):
        self._directory = directory
        self._connect = zookeeper.chroot()
        self._chroot = self._connect.removeprefix(zookeeper.connect_string)
        self.client = KazooClient(zookeeper.connect_string, timeout=10)
        (directory / "bin").mkdir()
        systemctl = directory / "bin" / "systemctl"
        # No unit runs here.
        systemctl.write_text('#!/bin/sh\n[ "$1" != --version ] || echo "systemd 252 (252.1)"\n')
        systemctl.chmod(0o755)
        (directory / "release.json").write_text(json.dumps({"release": "0.1.0-abc", "archive": "none.tar"}))
        for name in ("h1", "h2"):
            (directory / name / "etc").mkdir(parents=True)

    def registers(self, broker_id, registration):
        path = f"{self._chroot}/brokers/ids/{broker_id}"
        self.client.create(path, json.dumps(registration).encode(), ephemeral=True, makepath=True)

    def has(self, name, **properties):
        lines = "".join(f"{key.replace('_', '.')}={value}\n" for key, value in properties.items())
        (self._directory / name / "etc" / "broker-1.properties").write_text(lines)

    def deploy(self, playbook, *arguments, **variables):
        """What the play says, and whether it came to where hosts are changed."""
        inventory = {
            "brokers": {"hosts": {name: self._host(name) | variables for name in ("h1", "h2")}},
        }
        (self._directory / "hosts.json").write_text(json.dumps(inventory))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                "--check",
                f"--inventory={self._directory}/hosts.json",
                *arguments,
                ROOT / playbook,
            ],
            cwd=ROOT,
            env=os.environ
            | {
                "PATH": f"{self._directory}/bin:{os.environ['PATH']}",
                "ANSIBLE_HOME": f"{self._directory}/ansible",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        words = re.sub(r"\s+", " ", done.stdout)
        print(words)
        changing = ("TASK [landline.cluster.common : ", "PLAY [Install the broker and start the stopped ones")
        return words, any(each in words for each in changing)

    def _host(self, name):
        own = str(self._directory / name)
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "ansible_remote_tmp": f"{own}/tmp",
            "ansible_host": f"127.0.0.{name[1:]}",
            "common_python": sys.executable,
            "common_config_dir": f"{own}/etc",
            "common_install_dir": f"{own}/opt",
            "broker_dist_dir": str(self._directory),
            "broker_zookeeper_connect": self._connect,
        }


@pytest.fixture
def hosts(tmp_path, zookeeper):
    found = Hosts(tmp_path, zookeeper)
    found.client.start(30)
    yield found
    found.client.stop()
    found.client.close()


@pytest.mark.parametrize(
    ("playbook", "arguments"),
    [
        ("deploy.yml", ("--tags=broker",)),
        ("deploy.yml", (PARTS,)),
        ("playbooks/broker.yml", ()),
        ("playbooks/broker.yml", (PARTS,)),
    ],
)
def test_a_broker_that_is_not_in_the_inventory_and_lacks_the_listener_is_told_of(hosts, playbook, arguments):
    hosts.registers(7, KAFKA)
    words, went_on = hosts.deploy(playbook, *arguments)
    assert STRANGERS in words
    assert not went_on


@pytest.mark.parametrize(
    ("playbook", "arguments"),
    [
        ("deploy.yml", ()),
        ("playbooks/broker.yml", (PARTS,)),
    ],
)
def test_a_listener_by_which_brokers_speak_is_not_taken_from_one_that_is_stopped(hosts, playbook, arguments):
    """Of two hosts one speaks by it, and the other was never deployed."""
    hosts.has("h1", inter_broker_listener_name="BROKER")
    words, went_on = hosts.deploy(playbook, *arguments, **ONE_LISTENER)
    assert WITHOUT_LISTENER in words
    assert not went_on


def test_a_new_host_alone_hears_of_the_listener_by_the_registrations(hosts):
    hosts.registers(1, OURS)
    words, went_on = hosts.deploy("deploy.yml", "--limit=h2", **ONE_LISTENER)
    assert WITHOUT_LISTENER in words
    assert not went_on


@pytest.mark.parametrize("variables", [{}, ONE_LISTENER])
def test_a_new_cluster_may_have_two_listeners_or_one(hosts, variables):
    _, went_on = hosts.deploy("playbooks/broker.yml", PARTS, **variables)
    assert went_on


def test_who_speaks_by_the_listener_of_clients_may_lose_the_other(hosts):
    hosts.registers(1, OURS | {"landline_inter_broker_listener": "PLAINTEXT"})
    hosts.has("h1", inter_broker_listener_name="PLAINTEXT")
    words, went_on = hosts.deploy("playbooks/broker.yml", PARTS, **ONE_LISTENER)
    assert WITHOUT_LISTENER not in words
    assert went_on
