"""A ZooKeeper ensemble grows and shrinks on five hosts of this module's own, and keeps its tree.

Directories and the address of clients are not the default ones, so that these settings are seen to work as well.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from lab import Lab
from tests.support.deploying import ROOT, changed
from tests.support.lab_cluster import LAB_ENV
from tests.support.labs import lab_session

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

HOSTS = ("h1", "h2", "h3", "h4", "h5")
# Those that stay when five become three: the leader is among the others by then, for the first server, whose
# tree it was, restarts last.
STAY = ("h1", "h4", "h5")
DATA, LOGS = "/srv/zookeeper/data", "/srv/zookeeper/logs"
SETTINGS = {
    "zookeeper_data_dir": DATA,
    "zookeeper_data_log_dir": LOGS,
    "zookeeper_client_address": "{{ ansible_host }}",
}
NODES = 50


@dataclass
class Ensemble:
    """The hosts with ZooKeeper's playbook, each run with an inventory of its own."""

    lab: Lab
    variables: dict
    directory: Path

    def play(self, *members):
        """Runs the playbook with these hosts in the group; all five are in the inventory."""
        hosts = {name: self.variables[name] for name in HOSTS}
        groups = {"zookeeper": {"hosts": {name: {"zookeeper_id": int(name[1:])} for name in members}}}
        inventory = self.directory / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": hosts, "children": groups, "vars": SETTINGS}}))
        program = str(ROOT / ".venv" / "bin" / "ansible-playbook")
        argv = [program, "-i", str(inventory), "playbooks/zookeeper.yml"]
        done = subprocess.run(
            self.lab.enter_argv(argv),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-4000:]
        return done

    def connected(self, host):
        address = next(each.address for each in self.lab.hosts if each.name == host)
        client = KazooClient(f"{address}:2181", timeout=10)
        client.start(30)
        return client

    def tree(self, host):
        """What this one server has below /cluster and /topics."""
        client = self.connected(host)
        try:
            return client.get("/cluster/id")[0], len(client.get_children("/topics"))
        finally:
            client.stop()
            client.close()

    def running(self):
        return {host for host in HOSTS if self.says(host, "systemctl is-active zookeeper") == "active"}

    def says(self, host, command):
        return self.lab.run(host, command, check=False).stdout.strip()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    with lab_session("zk", hosts=5) as lab:
        listing = subprocess.run(
            [sys.executable, "inventory/lab.py", "--list"],
            cwd=ROOT,
            env={**os.environ, LAB_ENV: lab.name},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        variables = json.loads(listing)["_meta"]["hostvars"]
        for each in variables.values():
            del each["zookeeper_id"]  # as in the sample inventory, only hosts of the group have one
        with lab.inside():
            yield Ensemble(lab, variables, tmp_path_factory.mktemp("inventory"))


def assert_has_the_tree(ensemble, *members):
    assert ensemble.running() == set(members)
    for host in members:
        assert ensemble.tree(host) == (b"the first", NODES), host


def test_one_server_becomes_three_and_five_and_three_again_with_the_tree_on_each(ensemble):
    ensemble.play("h1")
    client = ensemble.connected("h1")
    client.create("/cluster/id", b"the first", makepath=True)
    for number in range(NODES):
        client.create(f"/topics/t{number}", b"x", makepath=True)
    client.stop()
    client.close()
    ensemble.play("h1", "h2", "h3")
    assert_has_the_tree(ensemble, "h1", "h2", "h3")
    again = ensemble.play("h1", "h2", "h3")
    assert set(changed(again.stdout).values()) == {0}
    ensemble.play(*HOSTS)
    assert_has_the_tree(ensemble, *HOSTS)
    ensemble.play(*STAY)
    assert_has_the_tree(ensemble, *STAY)
    for host in sorted(set(HOSTS) - set(STAY)):
        assert ensemble.says(host, "systemctl is-enabled zookeeper") == "disabled"
        assert "version-2.left-" in ensemble.says(host, f"ls {DATA}")
