"""A run notes itself on hosts, and another one on the same machine sees whether it goes on; elsewhere nobody does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deploy_code import ROOT, load

runs = load("plugins/filter/runs.py")
SINCE = "2026-11-27 10:03:11Z"


def noted_by(pid):
    fields = runs.fields_of(pid)
    return {**runs.run_here("control", SINCE), "pid": pid, "started": int(fields[19])}


def test_a_run_goes_on_as_long_as_its_process():
    with subprocess.Popen(["sleep", "60"]) as process:
        run = noted_by(process.pid)
        assert run["since"] == SINCE
        assert runs.run_state(run) == runs.GOES_ON
        assert runs.run_state({**run, "started": run["started"] - 1}) == runs.ENDED, (
            "its number is another's now"
        )
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert runs.run_state(run) == runs.ENDED, "nobody has waited for it yet"
    assert runs.run_state(run) == runs.ENDED


@pytest.mark.parametrize(
    "other", [{"boot": "another"}, {"pids": "pid:[1]"}, {"pid": None}, {"boot": None, "pids": None}]
)
def test_what_is_noted_by_another_machine_or_container_or_cannot_be_read_is_not_seen_from_here(other):
    assert runs.run_state({**noted_by(os.getpid()), **other}) == runs.ELSEWHERE
    assert runs.run_state({}) == runs.ELSEWHERE


def test_where_there_is_no_proc_nothing_is_seen(tmp_path):
    assert runs.place(tmp_path) == {"boot": "", "pids": ""}
    assert runs.run_state({"boot": "", "pids": "", "pid": 1, "started": 1}, tmp_path) == runs.ELSEWHERE


def test_a_playbooks_run_is_ansibles_main_process_whatever_started_it(tmp_path):
    """By Ansible itself: its workers, which come and go, are not the run."""
    play = tmp_path / "play.yml"
    play.write_text(
        "- {hosts: localhost, connection: local, gather_facts: false, tasks: ["
        "{ansible.builtin.debug: {msg: \"PID {{ ('x' | landline.cluster.run_here('now')).pid }}\"}}]}\n"
    )
    program = Path(sys.executable).with_name("ansible-playbook")
    with subprocess.Popen(
        [program, "-i", "localhost,", play],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdout=subprocess.PIPE,
        text=True,
    ) as playing:
        said, _ = playing.communicate(timeout=120)
    assert f"PID {playing.pid}" in said
