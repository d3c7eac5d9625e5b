"""Decommissioning a host that is off: nothing is begun until somebody says that it is gone for good, and then all is
done but what the host itself would have to do.

The playbook runs on this machine, as the host that asks the brokers, with a systemctl and a landline of the test's own.
"""

import json
import os
import re
import sys

import pytest

from tests.support.deploy_code import ROOT
from tests.support.plays import played

# Without `turns` beside it, it is a release before there were turns.
LANDLINE = """#!/bin/sh
if [ "$2" = --help ]; then cat "$0.turns"; exit 0; fi
case "$*" in *--who) echo null; exit;; esac
echo "$*" | sed 's/ [^ ]*properties//' >>{told}
echo '{{"done": true, "changed": true, "left": {{}}, "plan": {{"lines": ["11 replicas"]}}, "running": false}}'
"""
SYSTEMCTL = """#!/bin/sh
[ "$1" = is-active ]
"""
OFF = {"ansible_host": "127.0.0.1", "ansible_port": 1}
HOLDER = f"--holder=alice@{os.uname().nodename} (decommission h2, run RUN)"
DRAIN = "drain --broker=2 --throttle=52428800 --at-once=10"
EMPTIED = [
    f"{DRAIN} {HOLDER} --keep=3600 --json --within=15",
    f"drain --broker=2 --verify {HOLDER}",
    f"drain --broker=2 --forget {HOLDER}",
]


class Site:
    """This machine, whose broker 1 runs, and a host with broker 2."""

    def __init__(self, directory):
        self._directory = directory
        for name, text in (("current/venv/bin/landline", LANDLINE), ("bin/systemctl", SYSTEMCTL)):
            program = directory / name
            program.parent.mkdir(parents=True)
            program.write_text(text.format(told=directory / "told") if "current" in name else text)
            program.chmod(0o755)
        self._turns = directory / "current/venv/bin/landline.turns"
        self._turns.write_text("  --take-over NAME  who had the turn\n")
        self._here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "broker_install_dir": str(directory),
        }

    def decommission(self, other, *arguments, **more):
        """The exit status, and what was said."""
        inventory = {
            "brokers": {
                "hosts": {
                    "h1": {**self._here, "broker_first_id": 1},
                    "h2": {**other, "broker_first_id": 2},
                    **more,
                }
            },
            "zookeeper": {"hosts": {"h1": {}}},
        }
        (self._directory / "hosts.json").write_text(json.dumps(inventory))
        done = played(
            self._directory,
            "-i",
            self._directory / "hosts.json",
            "playbooks/decommission.yml",
            "-e",
            "decommission_host=h2",
            *arguments,
            env={"PATH": f"{self._directory / 'bin'}:{os.environ['PATH']}", "USER": "alice"},
        )
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    @property
    def told(self):
        """What was asked of landline. The name of the run is left out, and what it notes of itself."""
        told = self._directory / "told"
        lines = told.read_text().splitlines() if told.exists() else []
        return [re.sub(r" --run=\{.*?\}", "", re.sub(r"run \w{6}\)", "run RUN)", each)) for each in lines]

    def no_broker_runs(self):
        (self._directory / "bin/systemctl").write_text("#!/bin/sh\nexit 3\n")

    def has_no_turns(self):
        self._turns.unlink()

    @property
    def here(self):
        return self._here


@pytest.fixture
def site(tmp_path):
    """Nothing of a run stays in the checkout."""
    before = set((ROOT / "playbooks").iterdir())
    yield Site(tmp_path)
    assert set((ROOT / "playbooks").iterdir()) == before


def test_while_a_host_is_off_nothing_is_begun_and_what_to_do_is_said(site):
    status, said = site.decommission(OFF)
    assert status != 0
    assert site.told == []
    assert "h2 is not reached, and nothing was changed: " in said
    assert "If it is off for good: -e decommission_gone=true moves everything away without it" in said
    assert "Its disks must not come back: wipe them before" in said


def test_where_nobody_can_be_asked_it_is_said_who_is_not_reached_and_whose_broker_is_down(site):
    site.no_broker_runs()
    status, said = site.decommission(OFF, "-e", "decommission_gone=true", h0={**OFF, "broker_first_id": 3})
    assert status != 0
    assert site.told == []
    assert (
        "Nothing was touched: nobody can be asked. Not reached: h0. No broker runs on h1. Mend that" in said
    )


def test_of_a_host_that_is_gone_the_others_do_all_and_what_is_left_is_said(site):
    status, said = site.decommission(OFF, "-e", "decommission_gone=true")
    assert status == 0
    assert site.told == EMPTIED
    assert "take it out of the inventory. If it returns, wipe its disks before it starts" in said
    assert "out of the group brokers before the next deploy" not in said


def test_a_release_that_knows_no_turns_is_asked_for_none(site):
    site.has_no_turns()
    status, _said = site.decommission(OFF, "-e", "decommission_gone=true")
    assert status == 0
    assert site.told == [
        f"{DRAIN} --json --within=15",
        "drain --broker=2 --verify",
        "drain --broker=2 --forget",
    ]


def test_the_brokers_of_another_host_that_is_off_are_not_asked(site):
    status, _said = site.decommission(OFF, "-e", "decommission_gone=true", h0={**OFF, "broker_first_id": 3})
    assert status == 0
    assert site.told == EMPTIED


def test_a_host_that_answers_is_not_gone(site):
    status, said = site.decommission(site.here, "-e", "decommission_gone=true")
    assert status != 0
    assert site.told == []
    assert "decommission_gone says that h2 is gone for good, but it answers, and nothing was changed" in said


def test_a_dry_run_of_a_host_that_is_gone_changes_nothing(site):
    status, said = site.decommission(OFF, "-e", "decommission_gone=true", "--check")
    assert status == 0
    assert "The cluster does without h2" not in said
    assert site.told == [f"{DRAIN} --dry-run --json"]
