"""A broker that went first and is worse goes back only by a permit of its own: the one of its turn was given back.

The role's tasks run on this machine, with a systemctl and a landline of the test's own, which write down what they are
told.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deploy_code import ROOT

UNIT = "landline-broker@1.service"
# Another one than that of who runs the tests, where there may be one.
GROUP = 1 if os.geteuid() == 0 else os.getegid()
HELD = "broker 1 may not stop: the permit is held by another for broker 2"
PLAY = f"""
- hosts: brokers
  gather_facts: false
  tasks:
    - name: Fail as a canary does
      block:
        - ansible.builtin.fail: {{msg: it is slow}}
      rescue:
        - ansible.builtin.include_role: {{name: landline.cluster.broker, tasks_from: way_back}}
          vars: {{broker_one: {UNIT}}}
"""
LANDLINE = """#!/bin/sh
echo landline "$*" >>{told}
[ "$1" != may-stop ] || [ ! -e {refused} ] || {{ cat {refused} >&2; exit 75; }}
"""
SYSTEMCTL = """#!/bin/sh
case "$1" in restart|daemon-reload) echo systemctl "$*" >>{told};; esac
[ "$1" != show ] || echo "InvocationID=$(wc -l <{told} 2>/dev/null)
ActiveState=active"
"""


class Host:
    """This machine, as a host whose broker has got other files than it had."""

    def __init__(self, directory):
        self._directory, self._told = directory, directory / "told"
        self.refused = directory / "refused"
        self.files = [
            directory / "etc/broker-1.properties",
            directory / "etc/broker-1.env",
            directory / "units" / UNIT,
        ]
        for file in self.files:
            for place, text in ((file, "new"), (directory / "before" / file.name, "old")):
                place.parent.mkdir(exist_ok=True)
                place.write_text(text)
        for place, text in (("current/venv/bin/landline", LANDLINE), ("bin/systemctl", SYSTEMCTL)):
            program = directory / place
            program.parent.mkdir(parents=True)
            program.write_text(text.format(told=self._told, refused=self.refused))
            program.chmod(0o755)

    def goes_back(self):
        """What the play says."""
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "ansible_host": "127.0.0.1",
            "broker_first_id": 1,
            "broker_dist_dir": str(self._directory),
            "broker_install_dir": str(self._directory),
            "broker_config_dir": str(self._directory / "etc"),
            "broker_all": "{{ broker_settings | landline.cluster.broker_instances }}",
            "broker_permit_holder": "me",
            "broker_release": "as-it-is",
            "broker_system_group": str(GROUP),
        }
        # The role has these among its own, which only the command line comes before.
        more = {"broker_unit_dir": str(self._directory / "units"), "broker_ask_s": 0}
        inventory = {group: {"hosts": {"h1": variables}} for group in ("brokers", "zookeeper")}
        release = {"release": "0.1.0-abc", "archive": "none.tar"}
        files = {"hosts.json": json.dumps(inventory), "play.yml": PLAY, "release.json": json.dumps(release)}
        for name, text in files.items():
            (self._directory / name).write_text(text)
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [
                program,
                "-i",
                self._directory / "hosts.json",
                "-e",
                json.dumps(more),
                self._directory / "play.yml",
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}",
                "ANSIBLE_HOME": str(self._directory / "ansible"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert done.returncode != 0, "that it was worse ends the run"
        return re.sub(r"\s+", " ", done.stdout)

    @property
    def told(self):
        return [" ".join(line.split()[:2]) for line in self._told.read_text().splitlines()]


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_it_goes_back_by_a_permit_of_its_own(host):
    words = host.goes_back()
    assert host.told == [
        "systemctl daemon-reload",
        "landline may-stop",
        "systemctl restart",
        "landline await-return",
    ]
    assert [file.read_text() for file in host.files] == ["old"] * 3
    assert [file.stat().st_gid for file in host.files[:2]] == [GROUP] * 2, "a broker reads them by its group"
    assert f"{UNIT} on h1 went first and is worse: it is slow. It went back to the release" in words


def test_while_the_cluster_does_not_bear_it_its_files_are_back_and_it_is_not_restarted(host):
    host.refused.write_text(HELD)
    words = host.goes_back()
    assert host.told == ["systemctl daemon-reload", "landline may-stop"]
    assert [file.read_text() for file in host.files] == ["old"] * 3
    assert f"went first and is worse: it is slow. It could not go back: {HELD}. Its files are" in words
    assert f"`systemctl restart {UNIT}` starts it with them" in words
