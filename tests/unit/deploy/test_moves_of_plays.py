"""The commands of one play that moves partitions have the turn to do so from the first to the last, and name it.
Another play leaves it to one that goes on, and follows one that is over at once.

The role's tasks run on this machine, as the host that asks the brokers, with a landline of the test's own.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.support.deploy_code import ROOT, load
from tests.support.plays import played

rounds = load("plugins/action/attended_rounds.py")
moves = load("plugins/filter/moves.py")
runs = load("plugins/filter/runs.py")

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
if [ "$2" = --help ]; then echo '  --take-over NAME  who had the turn'; exit 0; fi
case "$*" in *--who) cat {told}.who; exit;; esac
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
HERE = f"alice@{os.uname().nodename}"
REPLACING = f"--holder={HERE} (replace h2, run RUN)"


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
        self.has_the_turn(None)

    def has_the_turn(self, held):
        """What `landline rebalance --who` says."""
        (self._directory / "told.who").write_text(json.dumps(held))

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
        """What was asked of landline. The name of the run is left out, and what it notes of itself."""
        return [
            re.sub(r" --run=\{.*?\}", "", re.sub(r"run \w{6}\)", "run RUN)", each)) for each in self.asked
        ]

    @property
    def asked(self):
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
    noted = [json.loads(re.search(r" --run=(\{.*?\})", one)[1]) for one in site.asked]
    assert {(one["what"], one["machine"]) for one in noted} == {("rebalance", os.uname().nodename)}
    assert [runs.run_state(one) for one in noted] == [runs.ENDED] * 3
    asked = [re.sub(r" --run=\{.*?\}", "", one) for one in site.asked]
    lines = [re.fullmatch(rf"rebalance --at-once=10 {named}( --held)? --within=15", one) for one in asked]
    first, second, other = lines
    assert first[1] == second[1] != other[1]
    assert [one[2] for one in lines] == [None, " --held", None]


def held_by(run, what="replace h2", **more):
    """A turn that the run with this note has."""
    return {
        "holder": f"{HERE} ({what}, run 1a2b3c)",
        "command": "fill --broker=2",
        "since_ms": 1_798_761_791_000,
        "remaining_ms": 3_500_000,
        "is_ending": False,
        "run": {**run, "what": what},
        **more,
    }


def noted_by(pid):
    return {**runs.run_here("control", "now"), "pid": pid, "started": int(runs.fields_of(pid)[19])}


def test_the_same_command_of_the_same_user_is_refused_while_the_first_goes_on_and_follows_it_at_once_then(
    site,
):
    with subprocess.Popen(["sleep", "600"]) as first:
        held = held_by(noted_by(first.pid))
        site.has_the_turn(held)
        status, said = site.play(REPLACE, "-e", "replace_host=h2")
        first.kill()
    assert status != 0
    assert (
        f"Nothing was touched: {HERE} (replace h2, run 1a2b3c) has the turn to move partitions since 2027-01-01 "
        f"00:03:11Z, and goes on as process {first.pid} of this machine."
    ) in said
    assert site.told == ["fill --broker=2 --prepare --dry-run"]
    status, said = site.play(REPLACE, "-e", "replace_host=h2")
    assert status == 0
    assert f"{held['holder']} is over, and has not given its turn back: this run goes on in its place" in said
    first, second = [each for each in site.asked if "--dry-run" not in each]
    assert f" --take-over={held['holder']} --keep=3600 --prepare" in first
    assert "--take-over" not in second
    assert " --held " in second


def test_whoever_pauses_asks_nobody(site):
    with subprocess.Popen(["sleep", "600"]) as first:
        site.has_the_turn(held_by(noted_by(first.pid)))
        status, _said = site.play(REBALANCE.replace("[rebalance]", "[rebalance, --pause]"))
        first.kill()
    assert status == 0
    assert (
        site.told[0]
        == "rebalance --pause --at-once=10 --holder=" + HERE + " (rebalance, run RUN) --within=15"
    )


@pytest.mark.parametrize(
    ("what", "then", "dead"),
    [
        ("replace h2", "replace h2", True),
        ("rebalance", "replace h2", True),
        ("replace h2", "rebalance", False),
        ("decommission h4", "decommission h3", False),
    ],
)
def test_what_is_half_done_is_left_to_the_same_command_but_for_a_rebalance(what, then, dead):
    held = held_by({}, what)
    found = moves.move_rival(held, "bob", then, lambda _: runs.ENDED)
    assert found["dead"] == (held["holder"] if dead else "")
    if not dead:
        assert "ended before it was done. Finish that first: run the same again" in found["why"]
        assert f"({what})" in found["why"]
        assert "make rebalance PAUSE=1. By itself it ends in 3500 s" in found["why"]


def test_the_turn_of_a_run_that_cannot_be_seen_or_takes_back_what_it_has_set_is_left_to_landline():
    nothing = {"dead": "", "why": ""}
    assert moves.move_rival(None, "bob", "rebalance") == nothing
    assert moves.move_rival(held_by({}), "bob", "replace h2", lambda _: runs.ELSEWHERE) == nothing
    ending = held_by({}, is_ending=True)
    assert moves.move_rival(ending, "bob", "replace h2", lambda _: runs.GOES_ON) == nothing
    own = held_by({"pid": 1})
    assert moves.move_rival(own, own["holder"], "replace h2", lambda _: runs.GOES_ON) == nothing
    strange = held_by({"pid": 1}, since_ms=1 << 60)
    assert (
        "has the turn to move partitions, and"
        in moves.move_rival(strange, "", "", lambda _: runs.GOES_ON)["why"]
    )


def test_a_round_after_the_first_one_goes_on_only_with_the_turn():
    told = json.dumps(
        {"plan": None, "changed": True, "left": {"replicas": 1, "bytes": 1, "words": "1 replica"}}
    )
    some = rounds.Rounds(600)
    assert some.options == []
    assert some.note(75, told, 0.0) is None
    assert some.options == ["--held"]
