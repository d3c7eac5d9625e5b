"""Hosts of Spark's that are off take no other host out of the run, and are not forgotten by those that are there.

The role's tasks run on this machine as a dry run, as the only master that is there; the diff has what they would write.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deploy_code import ROOT, load

spark = load("plugins/filter/spark.py")

PLAY = """
- hosts: spark_master:spark_workers
  gather_facts: false
  tasks:
    - ansible.builtin.ping:
    - ansible.builtin.import_role: {name: spark, tasks_from: ssh}
"""
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
HERE = {
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
    "ansible_become": False,
    "ansible_host": "192.0.2.1",
}
OFF = {"ansible_host": "127.0.0.1", "ansible_port": 1}
# h8 and h9 are in the inventory no more.
LET_IN = [
    'from="192.0.2.1,192.0.2.2",restrict ssh-ed25519 OLD1 spark@h1',
    'from="192.0.2.1,192.0.2.2",restrict ssh-ed25519 KEY2 spark@h2',
    'from="192.0.2.1,192.0.2.2",restrict ssh-ed25519 KEY8 spark@h8',
]
KNOWN = [
    "192.0.2.1 ssh-ed25519 OLD",
    "192.0.2.2 ssh-ed25519 HOST2",
    "192.0.2.3 ssh-ed25519 HOST3",
    "192.0.2.9 a b",
]


def after(said, name):
    """What a file would have, by its diff, without comments."""
    (diff,) = re.findall(rf"^\+\+\+ after: .*{name}.*\n@@.*\n((?:[-+ \\].*\n)+)", said, re.MULTILINE)
    lines = [line[1:] for line in diff.splitlines() if line[0] in "+ "]
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("limit", [[], ["--limit=h1"]], ids=["in the run", "beside the run"])
def test_the_master_that_is_there_stays_and_knows_those_that_are_off_as_before(tmp_path, limit):
    shutil.copytree(ROOT / "roles/spark", tmp_path / "roles/spark")
    tasks = tmp_path / "roles/spark/tasks/ssh.yml"
    text = tasks.read_text()
    assert HOST_KEY in text
    tasks.write_text(text.replace(HOST_KEY, str(tmp_path / "spark/.ssh/host.pub")))
    files = {
        "id_ed25519.pub": "ssh-ed25519 KEY1 spark@h1\n",
        "host.pub": "ssh-ed25519 HOST1 root@h1\n",
        "authorized_keys": "\n".join(["# ours", *LET_IN, ""]),
        "known_hosts": "\n".join(["# ours", *KNOWN, ""]),
    }
    (tmp_path / "spark/.ssh").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "spark/.ssh" / name).write_text(content)
    hosts = {
        "h1": HERE,
        "h2": OFF | {"spark_address": "192.0.2.2"},
        "h3": OFF | {"spark_address": "192.0.2.3"},
        "h4": OFF | {"spark_address": "192.0.2.4"},  # was never deployed to
    }
    own = {
        "spark_user": "spark",
        "spark_state_dir": str(tmp_path / "spark"),
        "spark_ssh_from": ["192.0.2.0/24"],
    }
    inventory = {
        "all": {"hosts": hosts, "vars": own},
        "spark_master": {"hosts": {"h1": {}, "h2": {}}},
        "spark_workers": {"hosts": {"h1": {}, "h3": {}, "h4": {}}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text(PLAY)
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "--check", "--diff", "-i", tmp_path / "hosts.json",
         *limit, tmp_path / "play.yml"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "ansible"), "ANSIBLE_ROLES_PATH": str(tmp_path / "roles")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip
    print(done.stdout)
    assert re.search(r"^h1 .*unreachable=0 +failed=0", done.stdout, re.MULTILINE)
    assert after(done.stdout, "authorized_keys") == [
        f'from="192.0.2.0/24",restrict ssh-ed25519 {key}' for key in ("KEY1 spark@h1", "KEY2 spark@h2")
    ]
    assert after(done.stdout, "known_hosts") == ["192.0.2.1 ssh-ed25519 HOST1", *KNOWN[1:3]]


def test_a_key_that_was_read_is_the_one_that_counts_and_nobody_has_that_of_another():
    read = [{"item": "h1", "content": "bmV3Cg=="}, {"item": "h2", "unreachable": True}]
    assert spark.spark_keys(read, {"h1": "old", "h2": "kept"}) == {"h1": "new", "h2": "kept"}
    assert spark.spark_authorized("\n".join(LET_IN), ["h2", "2", "h3"], "spark") == {
        "h2": "ssh-ed25519 KEY2 spark@h2"
    }
    assert spark.spark_known("\n".join(KNOWN), {"h3": "192.0.2.3", "h4": "192.0.2.4"}) == {
        "h3": "ssh-ed25519 HOST3"
    }
