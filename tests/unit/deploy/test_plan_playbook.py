"""The playbook that plans, as it runs: what it compares of a ZooKeeper server, and which files it takes for no plan.

The tasks run on this machine, with a systemctl of the test's own.
"""

import json
import os
import re
import sys

import pytest

from tests.support.plays import played

PLANNED = """
- hosts: zookeeper
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.zookeeper, tasks_from: planned}
    - ansible.builtin.debug: {msg: "It would write {{ zookeeper_planned.diff | to_json }}!"}
"""
SYSTEMCTL = "#!/bin/sh\nprintf 'ActiveState=inactive\\nMainPID=0\\nJob=\\nUnitFileState=\\n'\n"


@pytest.fixture
def play(tmp_path):
    """What is said by a playbook that runs here."""
    systemctl = tmp_path / "bin/systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)

    def run(book, **variables):
        here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "broker_plan_salt": "0123456789abcdef",
        }
        inventory = {group: {"hosts": {"h1": here}} for group in ("brokers", "zookeeper")}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        return played(
            tmp_path,
            "--check",
            "-i",
            tmp_path / "hosts.json",
            book,
            "-e",
            json.dumps(variables),
            env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        )

    return run


def test_what_would_be_written_of_a_zookeeper_server_has_its_unit_and_no_password(play, tmp_path):
    (tmp_path / "play.yml").write_text(PLANNED)
    done = play(
        tmp_path / "play.yml",
        zookeeper_unit="landline-nowhere.service",
        zookeeper_config_file=str(tmp_path / "zoo.cfg"),
        zookeeper_heap_mb=333,
        zookeeper_properties={"ssl.keyStore.password": "hidden-1"},
    )
    assert done.returncode == 0
    (said,) = re.findall(r"It would write .*?!", " ".join(done.stdout.split()))
    assert f"{tmp_path}/zoo.cfg (new)" in said
    assert "/etc/systemd/system/landline-nowhere.service (new)" in said
    assert "+ExecStart=/usr/bin/java -Xms333m -Xmx333m " in said
    assert "hidden-1" not in done.stdout


@pytest.mark.parametrize("text", [None, '{"brokers": []}'])
def test_a_file_that_is_no_plan_is_refused_in_these_words(play, tmp_path, text):
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    done = play("playbooks/apply.yml", landline_plan=str(file))
    assert done.returncode != 0
    assert f"{file} is no plan as `make plan` writes it now: make a new one" in " ".join(done.stdout.split())
