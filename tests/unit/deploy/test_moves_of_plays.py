"""The commands of one play that moves partitions have the turn to do so from the first to the last, and name it.

The role's tasks run on this machine, as the host that asks the brokers, with a landline of the test's own.
"""

import json
import os
import re
import sys

import pytest

from tests.support.deploy_code import ROOT, load
from tests.support.plays import played

rounds = load("plugins/action/attended_rounds.py")

# The tasks of playbooks/replace.yml without its deploy, and those of playbooks/rebalance.yml.
REPLACE = """
- hosts: h1
  gather_facts: false
  vars: {broker_move_host: h1}
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.broker, tasks_from: replace_prepare}
      loop: "{{ groups['brokers'] | map('extract', hostvars) | landline.cluster.broker_ids_of(replace_host) }}"
      loop_control: {loop_var: broker_filled}
"""
REBALANCE = """
- hosts: h1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.broker, tasks_from: move}
      vars: {broker_move: [rebalance]}
"""
# The first round of broker 2 is not the last one.
LANDLINE = """#!/bin/sh
if [ "$2" = --help ]; then echo '  --holder NAME  who has the turn'; exit 0; fi
echo "$*" | sed 's/ [^ ]*properties//; s/ --throttle=52428800//; s/ --json//' >>{told}
running={running}
case "$*" in
*--broker=2*--within*|*rebalance*) [ -e {told}.once ] || {{ touch {told}.once; rc=75; }};;
esac
left='"replicas": 0, "bytes": 0, "words": "nearly done; the throttle of t-0 stays until it is in sync"'
plan='"plan": {{"lines": ["11 replicas"]}}'
echo '{{"done": true, "changed": true, "left": {{'"$left"'}}, '"$plan"', "running": '$running'}}'
exit ${{rc:-0}}
"""
REPLACING = f"--holder=alice@{os.uname().nodename} (replace h2)"


class Site:
    """This machine, whose broker 1 runs, and a host that is to have the brokers 2 and 3."""

    def __init__(self, directory):
        self._directory = directory
        self._variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "broker_install_dir": str(directory),
        }
        self.runs("false")

    def runs(self, running):
        program = self._directory / "current/venv/bin/landline"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(LANDLINE.format(told=self._directory / "told", running=running))
        program.chmod(0o755)

    def play(self, text, *arguments):
        (self._directory / "play.yml").write_text(text)
        hosts = {
            "h1": {**self._variables, "broker_first_id": 1},
            "h2": {"broker_first_id": 2, "brokers_per_host": 2, "broker_replaced_running": []},
        }
        inventory = {"brokers": {"hosts": hosts}, "zookeeper": {"hosts": {"h1": {}}}}
        (self._directory / "hosts.json").write_text(json.dumps(inventory))
        done = played(
            self._directory,
            "-i",
            self._directory / "hosts.json",
            self._directory / "play.yml",
            *arguments,
            env={"USER": "alice"},
        )
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    @property
    def told(self):
        told = self._directory / "told"
        return told.read_text().splitlines() if told.exists() else []


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def fill_play():
    """The last play of playbooks/replace.yml, as it is there."""
    text = (ROOT / "playbooks/replace.yml").read_text()
    last = text[text.rindex("- name: Fill\n") :]
    return last.replace("  become: true\n", "  vars: {broker_move_host: h1}\n", 1)


def test_a_replacement_has_the_turn_from_the_throttle_until_all_its_brokers_are_filled(site):
    status, said = site.play(REPLACE + fill_play(), "-e", "replace_host=h2")
    assert status == 0
    assert site.told == [
        "fill --broker=2 --prepare --dry-run",
        f"fill --broker=2 {REPLACING} --keep=3600 --prepare",
        "fill --broker=3 --prepare --dry-run",
        f"fill --broker=3 {REPLACING} --held --keep=3600 --prepare",
        f"fill --broker=2 {REPLACING} --held --keep=3600 --within=15",
        f"fill --broker=2 {REPLACING} --held --keep=3600 --within=15",
        f"fill --broker=3 {REPLACING} --held --within=15",
    ]
    assert "- the throttle of t-0 stays until it is in sync" in said


def test_the_turn_is_not_taken_for_a_broker_that_runs_elsewhere(site):
    site.runs("true")
    status, said = site.play(REPLACE, "-e", "replace_host=h2")
    assert status != 0
    assert "Broker 2 runs, and not on h2" in said
    assert site.told == ["fill --broker=2 --prepare --dry-run"]


def test_a_dry_run_takes_no_turn(site):
    status, said = site.play(REPLACE, "-e", "replace_host=h2", "--check")
    assert status == 0
    assert site.told == ["fill --broker=2 --prepare --dry-run", "fill --broker=3 --prepare --dry-run"]
    assert "- 11 replicas" in said


def test_each_rebalance_has_a_name_of_its_own_in_all_its_rounds(site):
    assert site.play(REBALANCE)[0] == 0
    assert site.play(REBALANCE)[0] == 0
    named = r"--holder=alice@\S+ \(rebalance, run ([0-9a-f]{6})\)"
    lines = [re.fullmatch(rf"rebalance --at-once=10 {named}( --held)? --within=15", one) for one in site.told]
    first, second, other = lines
    assert first[1] == second[1] != other[1]
    assert [one[2] for one in lines] == [None, " --held", None]


def test_a_round_after_the_first_one_goes_on_only_with_the_turn():
    told = json.dumps(
        {"plan": None, "changed": True, "left": {"replicas": 1, "bytes": 1, "words": "1 replica"}}
    )
    some = rounds.Rounds(600)
    assert some.options == []
    assert some.note(75, told, 0.0) is None
    assert some.options == ["--held"]
