"""Before which changes a deploy begins to measure what they cost clients: those of a cluster that runs. One probe is of
all hosts.

The tasks run on this machine, with a probe of the test's own, which notes how it is called.
"""

import json
import os
import sys

import pytest
import yaml

from tests.support.deploy_code import ROOT
from tests.support.plays import played

BEGINS = """
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {broker_run_began: "{{ now().timestamp() }}"}
      run_once: true
- hosts: brokers
  gather_facts: false
  strategy: free
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.broker, tasks_from: probe_begin}
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.broker, tasks_from: probe_end}
      when: inventory_hostname == ansible_play_hosts | first
"""
PROBE = """
import sys
with open(__file__ + ".called", "a") as file:
    print(*sys.argv[1:], file=file)
print("three lines")
"""
SYSTEMCTL = """#!/bin/sh
printf 'ActiveState=inactive\\nMainPID=0\\nUnitFileState=disabled\\n'
"""
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
RUNS = {"servers": {}, "broker_runs": True, "registered": None}
STANDS = {"servers": {}, "broker_runs": False, "registered": {}}


@pytest.fixture
def called(tmp_path):
    """Runs the tasks on two hosts, which have looked so; returns how the probe was called, and what was said."""
    (tmp_path / "probe.py").write_text(PROBE)
    systemctl = tmp_path / "bin/systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)

    def run(first, second, book=BEGINS, servers=(), tags="all", **variables):
        (tmp_path / "play.yml").write_text(book)
        hosts = {
            "h1": {**HERE, "broker_quorum_looked": first},
            "h2": {**HERE, "broker_quorum_looked": second},
        }
        groups = {"brokers": {"hosts": hosts}, "zookeeper": {"hosts": {name: {} for name in servers}}}
        (tmp_path / "hosts.json").write_text(json.dumps(groups))
        more = {"broker_probe": str(tmp_path / "probe.py"), "broker_deploys_dir": str(tmp_path), **variables}
        argv = [
            f"--tags={tags}",
            "-i",
            tmp_path / "hosts.json",
            tmp_path / "play.yml",
            "-e",
            json.dumps(more),
        ]
        done = played(tmp_path, *argv, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
        assert done.returncode == 0
        notes = tmp_path / "probe.py.called"
        return notes.read_text().splitlines() if notes.exists() else [], done.stdout

    return run


def test_all_hosts_of_a_run_name_one_directory_and_its_end_is_shown_once(called):
    calls, said = called(RUNS, STANDS)
    directories = {call.split()[1] for call in calls}
    assert len(directories) == 1
    assert [call.split()[0] for call in calls][-1] == "end"
    assert said.count("three lines") == 1


def test_a_cluster_of_hosts_that_the_run_is_not_for_is_one(called):
    calls, _said = called(STANDS, {**STANDS, "registered": {"3": {}}})
    assert calls


@pytest.mark.parametrize(
    "more", [{}, {"broker_probe_enabled": False}, {"broker_security": "tls"}], ids=["none", "off", "no CA"]
)
def test_without_a_cluster_or_a_way_to_be_its_client_nothing_is_measured(called, more):
    first = RUNS if more else STANDS
    calls, said = called(first, STANDS, **more)
    assert calls == []
    assert "three lines" not in said


@pytest.mark.parametrize(("servers", "begins"), [(["h1"], True), ([], False)], ids=["a step", "no step"])
def test_a_step_of_zookeepers_servers_begins_it(called, tmp_path, servers, begins):
    names = {"Look for ZooKeeper servers", "Measure what ZooKeeper's steps cost clients"}
    book = yaml.safe_load((ROOT / "playbooks/zookeeper.yml").read_text())
    plays = yaml.safe_dump([play for play in book if play["name"] in names])
    places = {"zookeeper_config_file": f"{tmp_path}/zoo.cfg", "zookeeper_data_dir": f"{tmp_path}/data"}
    calls, _said = called(RUNS, RUNS, plays, servers, "zookeeper", broker_measures=True, **places)
    assert [call.split()[0] for call in calls] == ["begin"] * begins
