"""One run at a time: a second one waits, and a run that died is no longer waited for when its time is over."""

import json
import subprocess
import sys

import pytest

from tests.support.deploy_code import ROOT, load

lease = load("plugins/modules/host_lease.py")


def test_a_turn_that_nobody_has_is_given_and_kept_by_asking_again():
    mine = lease.decide({}, "alice", 100.0, 60.0)
    assert mine == {"holder": "alice", "until": 160.0}
    assert lease.decide(mine, "alice", 150.0, 60.0) == {"holder": "alice", "until": 210.0}


def test_another_has_it_until_its_time_is_over():
    mine = lease.decide({}, "alice", 100.0, 60.0)
    assert lease.decide(mine, "bob", 159.0, 60.0) == mine
    assert lease.decide(mine, "bob", 160.0, 60.0) == {"holder": "bob", "until": 220.0}


def test_a_turn_is_given_back_by_its_holder_only():
    mine = lease.decide({}, "alice", 100.0, 60.0)
    assert lease.decide(mine, "bob", 110.0, 0) == mine
    assert lease.decide(mine, "alice", 110.0, 0) == {}


def test_a_file_that_was_not_written_whole_is_of_nobody(tmp_path):
    path = tmp_path / "turn"
    path.write_text('{"holder": "al')
    assert lease.ask(path, "bob", 60.0)["holder"] == "bob"
    assert json.loads(path.read_text())["holder"] == "bob"


@pytest.mark.parametrize(("within_s", "waits"), [(0, False), (30, True)])
def test_who_finds_it_taken_waits_for_as_long_as_it_may_and_says_by_whom(tmp_path, within_s, waits):
    lease.ask(tmp_path / "landline-turn-zookeeper.json", "alice", 2.0 if waits else 300.0)
    wanted = {"name": "zookeeper", "holder": "bob", "within_s": within_s, "directory": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(ROOT)]!r}\n{RUN}"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": wanted}),
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(done.stdout)
    assert bool(said.get("failed")) is not waits
    assert said["holder"] == ("bob" if waits else "alice")
    assert waits or "alice is changing this host's zookeeper" in said["msg"]


# As Ansible runs a module: its arguments on the standard input.
RUN = """
import ansible.module_utils.basic as basic
basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = sys.stdin.buffer.read(), "legacy"
from tests.support.deploy_code import load
load("plugins/modules/host_lease.py").main()
"""
