"""A restore stops brokers only where the tree may be gone, restores it only where it is, and leaves no broker down that
it has stopped.

The role's own tasks for that run on this machine, with a systemctl of the test's own. Those that look at the host, and
that run `landline metadata`, are the test's own too.
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

metadata = load("plugins/filter/metadata.py")

OWN = ("restore_begin.yml", "restore_look.yml", "restore.yml", "restore_start.yml")
# As playbooks/restore.yml, without ZooKeeper's servers.
PLAY = """
- hosts: brokers
  gather_facts: false
  any_errors_fatal: true
  vars:
    broker_all: [{unit: landline-broker@1.service}, {unit: landline-broker@2.service}]
    broker_metadata_return_s: 77
    broker_metadata_units: "{{ broker_all | map(attribute='unit') }}"
  tasks:
    - ansible.builtin.include_tasks: tasks/restore_begin.yml
    - ansible.builtin.command: sh "{{ playbook_dir }}/between"
    - ansible.builtin.include_tasks: tasks/restore.yml
    - ansible.builtin.include_tasks: tasks/restore_start.yml
"""
TASKS = {
    "inspect": """
- ansible.builtin.set_fact:
    broker_seen: {running: [landline-broker@1.service], stopped: [landline-broker@2.service]}
""",
    "metadata_host": """
- ansible.builtin.set_fact: {broker_metadata_host: h1}
""",
    "metadata_file": """
- ansible.builtin.command: {argv: [landline, "{{ broker_metadata_verb }}"]}
  register: broker_metadata_said
  failed_when: broker_metadata_said.rc != 0 and not broker_metadata_probe | default(false)
""",
}
PROGRAMS = {
    "landline": """#!/bin/sh
echo "$1" >>{here}/told
[ "$1" = verify ] && exit 0
[ "$1" = restore ] && { echo "the tree is not empty" >&2; exit "$(cat {here}/restored)"; }
code=$(head -n 1 {here}/codes)
sed -i 1d {here}/codes
echo "backup of tree: why it is $code" >&2
exit $code
""",
    # Broker 2 is down already. Of timers only those that run are told.
    "systemctl": """#!/bin/sh
for last; do :; done
[ "$1" = --no-block ] && shift
state=$(cat "{here}/$last" 2>/dev/null || echo inactive)
case "$*" in
show*--value*) echo "$state";;
show*) printf 'LoadState=loaded\\nActiveState=%s\\n' "$state";;
start*) echo "start $last" >>{here}/told; echo active >"{here}/$last";;
stop\\ landline-return-*) [ ! -e "{here}/$2" ] || { echo "forget $2" >>{here}/told; rm "{here}/$2"; };;
stop*) echo "stop $last" >>{here}/told; echo inactive >"{here}/$last";;
esac
""",
    "systemd-run": """#!/bin/sh
for last; do :; done
for each; do case "$each" in
--unit=*) timer=${each#--unit=}.timer;;
--on-active=*) after=${each#--on-active=};;
esac; done
echo "$last returns after $after s" >>{here}/told
echo active >"{here}/$timer"
""",
}
FIRST, SECOND = "landline-broker@1.service", "landline-broker@2.service"
TIMER = "landline-return-landline-broker-1.timer"
STOPPED = [f"{FIRST} returns after 77 s", f"stop {FIRST}"]
# It is told anew when ZooKeeper serves.
STAYS = [f"forget {TIMER}", *STOPPED]


class Host:
    """This machine, with two brokers, of which one runs."""

    def __init__(self, directory):
        self._directory = directory
        for name in ("bin", "tasks"):
            (directory / name).mkdir()
        for name, text in PROGRAMS.items():
            program = directory / "bin" / name
            program.write_text(text.replace("{here}", str(directory)))
            program.chmod(0o755)
        for name in OWN:
            shutil.copy(ROOT / "roles/broker/tasks" / name, directory / "tasks")
        for name, text in TASKS.items():
            (directory / "tasks" / f"{name}.yml").write_text(text)
        (directory / FIRST).write_text("active")
        (directory / "between").write_text("")
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        (directory / "hosts.json").write_text(json.dumps({"brokers": {"hosts": {"h1": variables}}}))
        (directory / "play.yml").write_text(PLAY)

    def restore(self, *codes, restored=0):
        """What was said, and whether it failed; ``codes`` is how the tries to read the tree end."""
        (self._directory / "codes").write_text("".join(f"{code}\n" for code in codes))
        (self._directory / "restored").write_text(str(restored))
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", self._directory / "hosts.json",
             self._directory / "play.yml"],
            cwd=ROOT,
            env={
                **os.environ,
                "PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}",
                "ANSIBLE_HOME": str(self._directory / "ansible"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )  # fmt: skip
        print(done.stdout)
        return re.sub(r"\s+", " ", done.stdout), done.returncode != 0

    def between(self, script):
        """What happens while ZooKeeper is brought up."""
        (self._directory / "between").write_text(script)

    def has(self, name):
        return (self._directory / name).exists()

    @property
    def told(self):
        return (self._directory / "told").read_text().splitlines()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_tree_that_is_gone_once_zookeeper_answers_is_restored(host):
    said, has_failed = host.restore(69, 66)
    assert not has_failed
    started = [f"start {FIRST}", f"start {SECOND}", f"forget {TIMER}"]
    assert host.told == ["verify", "backup", *STOPPED, *STAYS, "backup", "restore", *started]
    assert "If this run ends before it has started them again, systemd does so 77 s after the stop" in said


def test_a_broker_that_comes_back_while_zookeeper_is_brought_up_is_stopped_again(host):
    host.between(f"systemctl start {FIRST}")
    _, has_failed = host.restore(69, 66)
    assert not has_failed
    assert host.told[2:9] == [*STOPPED, f"start {FIRST}", *STAYS, "backup"]


def test_a_run_that_ends_while_the_brokers_are_stopped_leaves_their_start_to_systemd(host):
    host.between("exit 1")
    _, has_failed = host.restore(69)
    assert has_failed
    assert host.told == ["verify", "backup", *STOPPED]
    assert host.has(TIMER)


def test_a_tree_that_is_there_is_left_alone_and_what_does_not_run_is_named(host):
    said, has_failed = host.restore(0)
    assert has_failed
    assert host.told == ["verify", "backup"]
    assert "This cluster has its metadata, and nothing is touched" in said
    assert "On h1 brokers do not run: `make deploy` starts them" in said


def test_a_tree_that_cannot_be_read_for_another_reason_is_not_lost(host):
    said, has_failed = host.restore(1)
    assert has_failed
    assert host.told == ["verify", "backup"]
    assert "could not be seen, and nothing is touched: backup of tree: why it is 1" in said


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (0, "ZooKeeper has come back with the tree: this cluster has its metadata"),
        (69, "Whether the tree is gone could not be seen: backup of tree: why it is 69"),
    ],
)
def test_what_was_stopped_is_started_where_nothing_is_restored(host, second, why):
    said, has_failed = host.restore(69, second)
    assert has_failed
    started = [f"start {FIRST}", f"forget {TIMER}"]
    assert host.told == ["verify", "backup", *STOPPED, *STAYS, "backup", *started]
    assert f"The brokers that this run has stopped are started again; `make deploy` starts all. {why}" in said


def test_a_restore_that_fails_says_what_starts_the_brokers(host):
    said, has_failed = host.restore(66, 66, restored=1)
    assert has_failed
    assert host.told == ["verify", "backup", *STOPPED, *STAYS, "backup", "restore"]
    assert host.has(TIMER)
    assert "the tree is not empty. The brokers are stopped: mend that, and run this again" in said
    assert "systemd starts them 77 s after the stop (broker_metadata_return_s)" in said


def test_each_exit_code_says_one_thing_of_the_tree():
    said = {code: metadata.metadata_tree({"rc": code, "stderr": "words"}) for code in (0, 66, 69, 1, 2, 127)}
    assert said == {0: "there", 66: "gone", 69: "away", 1: "unclear", 2: "unclear", 127: "unclear"}


def test_releases_with_one_exit_code_are_understood_by_their_words():
    words = "landline: backup of f with z: there is no cluster: /cluster/id is missing"
    assert metadata.metadata_tree({"rc": 1, "stderr": words}) == metadata.GONE
    assert metadata.metadata_tree({"rc": 1, "stderr": "landline: no ZooKeeper"}) == metadata.UNCLEAR
