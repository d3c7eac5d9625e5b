"""Hosts of the inventory that are not Landline's stop no deployment, and those that are reached are still asked for
ZooKeeper's servers. Where the brokers have another ensemble, no host is asked, and no server is stopped.

The plays run on this machine, with a systemctl of the test's own: a switch that cannot be reached, a host without a
Python that modules run on, and a host that left the ensemble.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deploy_code import ROOT

SYSTEMCTL = """#!/bin/sh
printf 'ActiveState=inactive\\nMainPID=0\\nUnitFileState=disabled\\n'
"""
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
INVENTORY = {
    "all": {
        "children": {
            "brokers": {"hosts": {"h1": HERE}},
            "zookeeper": {"hosts": {"h1": {}}},
            "network": {"hosts": {"switch1": {"ansible_host": "127.0.0.1", "ansible_port": 1}}},
            "web": {"hosts": {"old": {**HERE, "ansible_python_interpreter": "/nonexistent/python"}}},
            "spare": {"hosts": {"left": HERE}},
        }
    }
}
ELSEWHERE = {
    "brokers": {"hosts": {"h1": {**HERE, "broker_zookeeper_connect": "192.0.2.9:2181"}}},
    "spare": {"hosts": {"left": HERE}},
}
ASKED = {
    "hosts": "zookeeper_seen",
    "gather_facts": False,
    "tasks": [
        {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} has server {{ zookeeper_looked.id }}"}}
    ],
}


def plays(playbook, names):
    """The plays of these names in a playbook."""
    return [
        play for play in yaml.safe_load((ROOT / "playbooks" / playbook).read_text()) if play["name"] in names
    ]


@pytest.fixture
def run(tmp_path):
    """Runs plays on the hosts; returns the exit status and what was said."""
    program = tmp_path / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    (data / "myid").write_text("3")
    (tmp_path / "zoo.cfg").write_text(f"dataDir={data}\nserver.3=192.0.2.3:2888:3888\n")
    files = {"zookeeper_config_file": str(tmp_path / "zoo.cfg"), "zookeeper_data_dir": str(data)}

    def run_them(book, *arguments, inventory=INVENTORY):
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        (tmp_path / "play.yml").write_text(yaml.safe_dump(book))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                f"--inventory={tmp_path / 'hosts.json'}",
                f"--extra-vars={json.dumps(files)}",
                *arguments,
                tmp_path / "play.yml",
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "PATH": f"{program.parent}:{os.environ['PATH']}",
                "ANSIBLE_HOME": str(tmp_path / "ansible"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        return done.returncode, done.stdout

    return run_them


def test_a_preflight_does_not_even_ask_them(run):
    names = ["Look at all hosts before anything is changed", "Leave out hosts that were not reached"]
    status, said = run(plays("preflight.yml", names), "--limit=!h1")
    assert status == 0
    assert "switch1" in said
    assert "UNREACHABLE" not in said
    assert "FAILED" not in said


def test_the_look_for_zookeepers_servers_goes_on_without_them_and_finds_those_that_left(run):
    book = [*plays("zookeeper.yml", ["Look for ZooKeeper servers"]), {**ASKED, "tags": ["zookeeper"]}]
    status, said = run(book, "--limit=!h1", "--tags=zookeeper")
    assert status == 0
    assert "fatal: [switch1]: UNREACHABLE!" in said
    assert "fatal: [old]: FAILED!" in said
    assert said.count("...ignoring") == 2
    assert "left has server 3" in said


def test_a_plan_is_made_without_them(run):
    status, said = run([*plays("plan.yml", ["Look at ZooKeeper's servers"]), ASKED], "--limit=!h1")
    assert status == 0
    assert "fatal: [old]: FAILED!" in said
    assert said.count("...ignoring") == 2
    assert "left has server 3" in said


def test_a_host_of_the_ensemble_that_cannot_be_looked_at_ends_its_run(run):
    book = plays("zookeeper.yml", ["Look for ZooKeeper servers"])
    status, said = run(book, "--limit=h1", "--extra-vars=ansible_python_interpreter=/nonexistent/python")
    assert status != 0
    assert "ignoring" not in said


@pytest.mark.parametrize("group", [{}, {"zookeeper": {"hosts": {}}}], ids=["missing", "empty"])
def test_without_the_group_zookeeper_the_servers_that_hosts_have_are_left_alone(run, group):
    book = yaml.safe_load((ROOT / "playbooks/zookeeper.yml").read_text())
    book = [play for play in book if "hosts" in play]
    status, said = run([*book, ASKED], "--check", inventory={**ELSEWHERE, **group})
    assert status == 0
    assert "has server" not in said
    assert "Bring the ensemble to its desired state" in said
    assert "Refuse to end the whole ensemble" not in said


def test_without_the_group_zookeeper_a_plan_has_no_servers(run):
    servers = {
        "hosts": "h1",
        "gather_facts": False,
        "roles": [{"role": "landline.cluster.broker", "when": False}],
        "post_tasks": [{"ansible.builtin.debug": {"msg": "planned are {{ broker_plan_servers }}"}}],
    }
    book = [*plays("plan.yml", ["Look at ZooKeeper's servers"]), ASKED, servers]
    status, said = run(book, "--check", inventory=ELSEWHERE)
    assert status == 0
    assert "has server" not in said
    assert "planned are []" in said


def test_an_ensemble_whose_group_has_no_host_is_not_ended(run):
    ensemble = {"name": "landline.cluster.zookeeper", "tasks_from": "ensemble"}
    play = {**ASKED, "hosts": "h1", "tasks": [{"ansible.builtin.import_role": ensemble}]}
    status, said = run([play], "--check", inventory=ELSEWHERE)
    assert status != 0
    assert "The group zookeeper has no host, and h1 has a server. Nothing was stopped" in said


def test_a_first_broker_whose_host_is_lost_while_it_is_watched_ends_the_run(run):
    (watching,) = plays("broker.yml", ["Watch a first broker that an earlier run left unwatched"])
    tasks = [{"name": "Watch it", "ansible.builtin.ping": None}]
    goes_on = {"name": "Roll the others", "hosts": "h1", "gather_facts": False, "tasks": tasks}
    status, said = run(
        [{**watching, "hosts": "switch1:h1", "become": False, "tasks": tasks}, goes_on], "--tags=all,broker"
    )
    assert status != 0
    assert "fatal: [switch1]: UNREACHABLE!" in said
    assert "ok: [h1]" not in said
