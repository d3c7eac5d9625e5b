"""Before which changes a deploy begins to measure what they cost clients: those of a cluster that runs. One probe is of
all hosts.

The tasks run on this machine, with a probe of the test's own, which notes how it is called.
"""

import json
import sys

import pytest

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
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
RUNS = {"servers": {}, "broker_runs": True, "registered": None}
STANDS = {"servers": {}, "broker_runs": False, "registered": {}}


@pytest.fixture
def called(tmp_path):
    """Runs the tasks on two hosts, which have looked so; returns how the probe was called, and what was said."""
    (tmp_path / "play.yml").write_text(BEGINS)
    (tmp_path / "probe.py").write_text(PROBE)

    def run(first, second, **variables):
        hosts = {
            "h1": {**HERE, "broker_quorum_looked": first},
            "h2": {**HERE, "broker_quorum_looked": second},
        }
        (tmp_path / "hosts.json").write_text(json.dumps({"brokers": {"hosts": hosts}}))
        more = {"broker_probe": str(tmp_path / "probe.py"), "broker_deploys_dir": str(tmp_path), **variables}
        done = played(tmp_path, "-i", tmp_path / "hosts.json", tmp_path / "play.yml", "-e", json.dumps(more))
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
