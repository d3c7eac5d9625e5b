"""Runs playbooks on a lab's hosts with an inventory of the test's own: which hosts have brokers, and with which ids."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lab import Lab
from lab.inventory import host_variables
from tests.support.deploying import ROOT


class OwnInventory:
    """The lab's hosts, with ZooKeeper on one of them, and brokers on those that the test names."""

    def __init__(self, lab: Lab, directory: Path, zookeeper: str, settings: Mapping[str, object]) -> None:
        self._lab = lab
        self._file = directory / "hosts.json"
        self._zookeeper = zookeeper
        self._settings = dict(settings)
        self.brokers: dict[str, int] = {}

    def play(self, book: str, *arguments: str, fails: bool = False) -> str:
        """What the playbook says."""
        done = subprocess.run(
            self.argv(book, *arguments),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert (done.returncode != 0) is fails, done.stdout[-4000:]
        return done.stdout

    def argv(self, book: str, *arguments: str) -> list[str]:
        """The command line of a playbook with the brokers that there are to be now."""
        hosts = {
            host.name: host_variables(host, self._lab.files, 1)
            | ({"broker_first_id": self.brokers[host.name]} if host.name in self.brokers else {})
            for host in self._lab.hosts
        }
        groups = {
            "zookeeper": {"hosts": {self._zookeeper: {}}},
            "brokers": {"hosts": {name: {} for name in self.brokers}},
        }
        inventory = {"all": {"hosts": hosts, "children": groups, "vars": self._settings}}
        self._file.write_text(json.dumps(inventory))
        program = str(ROOT / ".venv" / "bin" / "ansible-playbook")
        return self._lab.enter_argv([program, "-i", str(self._file), book, *arguments])
