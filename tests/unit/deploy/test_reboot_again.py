"""Between the permit, for which a host may wait for long, and its reboot, ZooKeeper's servers are asked again, and
nobody else changes them until all serve.

The role's own tasks for that run on this machine. Those that look at the host, note, ask and reboot are the test's own.
"""

import json
import re
import shutil
import sys
import time

import pytest

from tests.support.deploy_code import ROOT
from tests.support.plays import played

OWN = ("reboot.yml", "reboot_again.yml", "reboot_turn.yml", "reboot_back.yml", "reboot_give_back.yml")
PLAY = """
- hosts: h1
  gather_facts: false
  serial: 1
  vars_files: ["{{ role }}/defaults/main.yml", "{{ role }}/vars/main.yml"]
  tasks:
    - ansible.builtin.include_tasks: tasks/reboot.yml
"""
# Each adds its line, and reboot_now.yml whose turn it is by then.
NOTED = """
- name: {name}
  ansible.builtin.shell: "{command}"
"""
COMMANDS = {
    "reboot_look": "true",
    "reboot_note": "true",
    "reboot_ask": "echo permit >>{here}/told",
    "reboot_now": "cat {here}/landline-turn-zookeeper.json >{here}/turn; echo reboot >>{here}/told",
    "reboot_ensemble": "echo asked {{{{ broker_reboot_tries | default('long') }}}} >>{here}/told; "
    "[ $(grep -c asked {here}/told) != {{{{ fails_at | default(0) }}}} ]",
}
LANDLINE = """#!/bin/sh
echo "$1 $3" >>{here}/told
"""
MINE = "alice@control (run 1a2b3c)"


@pytest.fixture
def site(tmp_path):
    (tmp_path / "tasks").mkdir()
    for name in OWN:
        shutil.copy(ROOT / "roles/broker/tasks" / name, tmp_path / "tasks")
    for name, command in COMMANDS.items():
        text = NOTED.format(name=name, command=command.format(here=tmp_path))
        if name == "reboot_now":
            text += "- name: Note it\n  ansible.builtin.set_fact: {broker_rebooted: true}\n"
        (tmp_path / "tasks" / f"{name}.yml").write_text(text)
    (tmp_path / "landline").write_text(LANDLINE.format(here=tmp_path))
    (tmp_path / "landline").chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)
    seen = {"boot_id": "b1", "noted": "b1", "holder": MINE, "needed": False}
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "broker_boot_seen": seen,
    }
    hosts = {"h1": here, "h2": here, "h0": {}}
    groups = {"brokers": {"hosts": {"h1": {}}}, "zookeeper": {"hosts": hosts}}
    (tmp_path / "hosts.json").write_text(json.dumps(groups))
    return tmp_path


def reboot(site, **more):
    told = {
        "role": str(ROOT / "roles/broker"),
        "broker_permit_holder": MINE,
        "broker_reboot_found": MINE,
        "broker_reboot_turn": "reboot",
        "broker_reboot_note": str(site / "note"),
        "broker_turn_dir": str(site),
        "broker_runs_here": ["landline-broker@1.service"],
        "broker_all": [{"unit": "landline-broker@1.service", "config": "broker-1.properties"}],
        "broker_roll_check_isr": True,
        "broker_landline": str(site / "landline"),
        **more,
    }
    done = played(site, "-i", site / "hosts.json", site / "play.yml", "-e", json.dumps(told))
    return re.sub(r"\s+", " ", done.stdout), (site / "told").read_text().splitlines()


def holder(site, name="landline-turn-zookeeper.json"):
    return json.loads((site / name).read_text()).get("holder", "")


def test_zookeeper_is_asked_again_after_the_permit_and_its_turn_is_held_until_all_serve_again(site):
    # Without the brokers, whose return it waits for then.
    (site / "tasks/reboot_back.yml").write_text(
        (ROOT / "roles/broker/tasks/reboot_back.yml").read_text().partition("    # The one that has")[0]
    )
    said, told = reboot(site)
    assert told == ["asked long", "permit", "asked 5", "reboot", "asked long"]
    assert holder(site, "turn") == MINE, "while it boots"
    assert holder(site) == ""
    assert "failed=0" in said


def test_a_server_that_went_away_while_the_permit_was_waited_for_keeps_the_host_up(site):
    said, told = reboot(site, fails_at=2)
    assert told == ["asked long", "permit", "asked 5", f"await-return --holder={MINE}"]
    assert "h1 was not rebooted, and no other host is: " in said
    assert holder(site) == ""


def test_a_deploy_that_changes_servers_is_waited_for_and_named(site):
    until = time.clock_gettime(time.CLOCK_BOOTTIME) + 300
    other = {"holder": "bob@laptop (run 4d5e6f)", "until": until}
    (site / "landline-turn-zookeeper.json").write_text(json.dumps(other))
    said, told = reboot(site, broker_turn_within_s=0)
    assert told == ["asked long", "permit", f"await-return --holder={MINE}"]
    assert "no other host is: bob@laptop (run 4d5e6f) is changing this host's zookeeper" in said
    assert holder(site) == "bob@laptop (run 4d5e6f)", "it is another's"


def test_a_host_without_a_server_takes_no_turn(site):
    groups = json.loads((site / "hosts.json").read_text())
    groups["brokers"]["hosts"]["h1"] = groups["zookeeper"]["hosts"].pop("h1")
    (site / "hosts.json").write_text(json.dumps(groups))
    (site / "tasks/reboot_now.yml").write_text(f"- ansible.builtin.shell: echo reboot >>{site}/told")
    _said, told = reboot(site)
    assert told == ["asked long", "permit", "asked 5", "reboot"]
    assert not (site / "landline-turn-zookeeper.json").exists()
