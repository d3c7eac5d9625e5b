"""What a preflight is told of Spark: the role's own judgement of its settings, and the memory of all workers of a host.

The role's tasks for it run on this machine, which they do not look at.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deploy_code import ROOT

PLAY = """
- hosts: all
  gather_facts: false
  vars: {preflight_mistyped: {h1: [], h2: [], h3: []}, preflight_unsettled: []}
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.preflight, tasks_from: needs}
      vars: {preflight_role: spark}
    - ansible.builtin.debug:
        msg: "{{ inventory_hostname }} is told {{ preflight_unsettled + spark_needs.wrong }},
          {{ spark_needs.memory_mb }} MB!"
"""
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}


@pytest.fixture
def told(tmp_path):
    """What is told of each host that these groups have."""

    def tell(variables, **groups):
        hosts = {
            host: HERE | {"ansible_host": f"192.0.2.{host[1:]}"}
            for host in sorted({name for names in groups.values() for name in names})
        }
        inventory = {"all": {"hosts": hosts, "vars": variables}}
        inventory |= {name: {"hosts": {host: {} for host in names}} for name, names in groups.items()}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        (tmp_path / "play.yml").write_text(PLAY)
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [program, "--check", "-i", tmp_path / "hosts.json", tmp_path / "play.yml"],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "ansible")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == 0
        words = re.sub(r"\s+", " ", done.stdout)
        return {
            host: (wrong, int(mb))
            for host, wrong, mb in re.findall(r"(h\d) is told (\[.*?\]), (\d+) MB!", words)
        }

    return tell


def test_a_standby_master_has_nothing_wrong_and_each_worker_of_a_host_has_its_memory(told):
    found = told(
        {"spark_worker_memory": "2g", "spark_workers_per_host": "3"},
        spark_master=["h1", "h2"],
        spark_workers=["h2", "h3"],
        zookeeper=["h1", "h2", "h3"],
    )
    assert found == {"h1": ("[]", 0), "h2": ("[]", 3 * 2048), "h3": ("[]", 3 * 2048)}


def test_what_the_role_would_refuse_is_told_before(told):
    found = told({}, spark_master=["h1", "h2"], spark_workers=["h2"])
    assert all("ZOOKEEPER, and the group zookeeper has no host" in wrong for wrong, _ in found.values())
    assert set(found) == {"h1", "h2"}
    (wrong, _) = told({}, spark_workers=["h1"])["h1"]
    assert "The group spark_master has no host: give it one, or two for a standby." in wrong
