"""A dry run of a restart says of each broker that runs what the cluster would answer now, and restarts nothing.

The role's tasks run on this machine, with a systemctl and a landline of the test's own.
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
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: landline.cluster.broker, tasks_from: restart}
      vars: {broker_release: as-it-is}
"""
# Broker 2 is refused.
LANDLINE = """#!/bin/sh
echo "$*" >>{told}
case "$2" in
*broker-1.properties) echo "broker 1 may stop now";;
*) echo "broker 2 may not stop: it is the last of an ISR" >&2; exit 75;;
esac
"""
SYSTEMCTL = f"""#!/bin/sh
[ "$1" = show ] || exit 1
printf 'ActiveState=active\\nMainPID={os.getpid()}\\nJob=0\\n'
"""


@pytest.fixture
def host(tmp_path):
    for name, text in (("current/venv/bin/landline", LANDLINE), ("bin/systemctl", SYSTEMCTL)):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text(text.format(told=tmp_path / "told") if name.startswith("current") else text)
        program.chmod(0o755)
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "ansible_host": "127.0.0.1",
        "broker_first_id": 1,
        "brokers_per_host": 2,
        "broker_dist_dir": str(tmp_path),
        "broker_install_dir": str(tmp_path),
        "broker_config_dir": str(tmp_path / "etc"),
    }
    inventory = {group: {"hosts": {"h1": variables}} for group in ("brokers", "zookeeper")}
    release = {"release": "0.1.0-abc", "archive": "none.tar"}
    files = {
        "hosts.json": json.dumps(inventory),
        "play.yml": PLAY,
        "release.json": json.dumps(release),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_shows_of_each_broker_whether_it_would_be_allowed(host):
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", host / "hosts.json", "--check", host / "play.yml"],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{host / 'bin'}:{os.environ['PATH']}",
            "ANSIBLE_HOME": str(host / "ansible"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert re.search(r"msg: broker 1 may stop now", done.stdout)
    assert re.search(r"msg: 'broker 2 may not stop: it is the last of an ISR'", done.stdout)
    asked = [f"may-stop {host}/etc/broker-{number}.properties --dry-run" for number in (1, 2)]
    assert (host / "told").read_text().splitlines() == asked
