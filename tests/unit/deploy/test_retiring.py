"""While a decommission removes a host's brokers nothing starts them: systemd does not, and a deploy and its like leave
the host alone and say why. A decommission that ended midway is finished by the next one, or given up by a deploy.

The role's tasks run on this machine, with a systemctl of the test's own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deploy_code import ROOT, load, tasks_of
from tests.support.plays import played

moves = load("plugins/filter/moves.py")
runs = load("plugins/filter/runs.py")
instances = load("plugins/modules/broker_instances_info.py")

PLAY = """
- hosts: h1
  gather_facts: false
  vars: {broker_release: as-it-is}
  tasks:
"""
STEP = "    - ansible.builtin.include_role: {name: landline.cluster.broker, tasks_from: %s}\n"
MAIN = "    - ansible.builtin.import_role: {name: landline.cluster.broker}\n"
CONFIGURE = STEP + '      vars: {broker_to_configure: "{{ broker_all }}"}\n'
SYSTEMCTL = """#!/bin/sh
echo "$*" >>{told}
case "$1" in
show) printf 'Id=x\\nLoadState=loaded\\nActiveState={state}\\nSubState=x\\nMainPID=0\\nJob=0\\n';;
is-enabled) echo enabled;;
esac
"""
UNITS = ("landline-broker@1.service", "landline-broker@2.service")
NAME = f"alice@{os.uname().nodename} (decommission h1, run 1a2b3c)"


class Host:
    """This machine, which has the brokers 1 and 2. A decommission notes on it the process `decommissioner`."""

    def __init__(self, directory):
        self.directory, self.units = directory, directory / "units"
        for name in ("bin", "units", "etc"):
            (directory / name).mkdir()
        for unit in UNITS:
            (self.units / unit).write_text("")
        self._variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "ansible_host": "127.0.0.1",
            "broker_first_id": 1,
            "brokers_per_host": 2,
            "broker_dist_dir": str(directory),
            "broker_install_dir": str(directory / "opt"),
            "broker_config_dir": str(directory / "etc"),
            "broker_data_dir": str(directory / "data"),
            "broker_system_user": "root",
            "broker_system_group": "root",
            "broker_http_host": "",
        }
        (directory / "release.json").write_text(json.dumps({"release": "0.1.0-abc", "archive": "none.tar"}))
        self.is_in("inactive")

    def is_in(self, state):
        program = self.directory / "bin/systemctl"
        program.write_text(SYSTEMCTL.format(told=self.directory / "told", state=state))
        program.chmod(0o755)

    def play(self, tasks, *arguments, decommissioner=None):
        hosts = {"h1": self._variables, "h2": {"ansible_host": "127.0.0.2", "broker_first_id": 11}}
        if decommissioner:
            hosts["h2"] |= {"broker_move_holder": f"{NAME}\n", "broker_move_run": decommissioner}
        inventory = {"brokers": {"hosts": hosts}, "zookeeper": {"hosts": {"h1": {}}}}
        (self.directory / "hosts.json").write_text(json.dumps(inventory))
        (self.directory / "play.yml").write_text(PLAY + tasks)
        done = played(
            self.directory,
            *("-i", self.directory / "hosts.json", self.directory / "play.yml", *arguments),
            *("-e", f"broker_unit_dir={self.units}"),
            env={"PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"},
        )
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    def deploy(self, *arguments):
        """The role's tasks until it refuses. A place below /tmp is refused before."""
        return self.play(MAIN, "-e", "broker_data_dir=/srv/of-no-test", *arguments)

    def stops(self, decommissioner):
        assert self.play(STEP % "retire_stop", decommissioner=decommissioner)[0] == 0

    def was_stopped(self, decommissioner):
        """As `stops` leaves it."""
        noted = json.dumps({"holder": NAME, "run": decommissioner})
        for unit in UNITS:
            (self.units / f"{unit}.d").mkdir()
            (self.units / f"{unit}.d/decommission.conf").write_text(f"# {noted}\n[Unit]\n")

    @property
    def bars(self):
        return sorted(self.units.glob("*.d/decommission.conf"))

    @property
    def told(self):
        """What was asked of systemctl but looks."""
        told = self.directory / "told"
        lines = told.read_text().splitlines() if told.exists() else []
        return [each for each in lines if each.split()[0] not in {"show", "is-enabled"}]


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def noted_by(pid):
    return {
        **runs.run_here("control", "2026-11-27 10:03:11Z"),
        "pid": pid,
        "started": int(runs.fields_of(pid)[19]),
    }


@pytest.fixture
def lives():
    """What a run notes that goes on."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield noted_by(process.pid)
        process.kill()


@pytest.fixture
def ended():
    with subprocess.Popen(["sleep", "600"]) as process:
        noted = noted_by(process.pid)
        process.kill()
    return noted


def test_nothing_starts_them_from_before_the_stop_on(host, lives):
    host.is_in("active")
    host.stops(lives)
    assert [each.parent.name for each in host.bars] == [f"{unit}.d" for unit in UNITS]
    for bar in host.bars:
        assert bar.read_text().endswith(f"\n[Unit]\nAssertPathExists=!{bar}\n")
    assert host.told[0] == "daemon-reload"
    assert set(host.told[1:]) == {f"{verb} {unit}" for unit in UNITS for verb in ("disable", "stop")}
    noted = instances.retired(str(host.units), UNITS, "decommission.conf")
    assert [(each["holder"], each["run"]) for each in noted] == [(NAME, lives)] * 2


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="asks systemd")
def test_systemd_starts_no_unit_as_long_as_the_file_is_there(host, lives):
    host.stops(lives)
    bar = host.bars[0]
    asserts = bar.read_text().splitlines()[-1]

    def starts():
        return subprocess.run(["systemd-analyze", "condition", asserts], check=False).returncode == 0

    assert not starts()
    bar.unlink()
    assert starts()


def test_a_dry_run_keeps_nobody_from_anything(host):
    status, _said = host.play(STEP % "retire_stop", "--check")
    assert status == 0
    assert host.bars == []


@pytest.mark.parametrize("more", [(), ("-e", "decommission_abandoned=h1")])
def test_a_deploy_leaves_the_host_alone_while_the_decommission_goes_on(host, lives, more):
    host.was_stopped(lives)
    status, said = host.deploy("--tags=broker_service", *more)
    assert status != 0
    assert (
        f"h1: {NAME} is removing {', '.join(UNITS)} since 2026-11-27 10:03:11Z, and goes on as process {lives['pid']} "
        "of this machine. Nothing was touched here. When it is done, take h1 out of the group brokers"
    ) in said
    assert host.told == []
    assert len(host.bars) == 2


def test_one_that_ended_midway_is_to_be_finished_or_given_up(host, ended):
    host.was_stopped(ended)
    status, said = host.deploy("--check")
    assert status != 0
    assert (
        "that run ended before it was done. Nothing was touched here. Finish it (make decommission HOST=h1), or give "
        "it up and keep the brokers: make deploy ANSIBLE_ARGS='-e decommission_abandoned=h1'"
    ) in said
    assert len(host.bars) == 2


def test_a_deploy_that_gives_it_up_lets_them_start_again(host, ended):
    host.was_stopped(ended)
    deploy = STEP % "inspect" + STEP % "retire_refuse" + CONFIGURE % "configure"
    status, _said = host.play(deploy, "-e", "decommission_abandoned=h1,h7")
    assert status == 0
    assert host.bars == []
    assert host.told == ["daemon-reload"]


def test_the_next_decommission_notes_itself_and_removes_what_kept_them_from_starting_last(host, ended, lives):
    host.was_stopped(ended)
    host.stops(lives)
    noted = [each["run"] for each in instances.retired(str(host.units), UNITS, "decommission.conf")]
    assert noted == [lives, lives]
    tasks = yaml.safe_load((ROOT / "roles/broker/tasks/retire_remove.yml").read_text())
    assert tasks[-1]["name"] == "Remove what kept them from starting"
    host.is_in("inactive")
    assert host.play(STEP % "retire_remove")[0] == 0
    assert list(host.units.iterdir()) == []


def test_what_cannot_be_read_is_somebodys_and_is_to_be_given_up(tmp_path):
    assert instances.retired(str(tmp_path), UNITS, "x.conf") == []
    (tmp_path / f"{UNITS[0]}.d").mkdir()
    for text in ("", "# {\n", '# {"run": 7}\n'):
        (tmp_path / f"{UNITS[0]}.d/x.conf").write_text(text)
        (found,) = instances.retired(str(tmp_path), UNITS, "x.conf")
        assert (found["unit"], found["holder"], found["run"]) == (UNITS[0], "", {})
        why = moves.retiring([found], "h1")
        assert why.startswith(
            f"h1: somebody is removing {UNITS[0]}; whether that run goes on is not seen here. "
        )
        assert moves.retiring([found], "h1", "h2, h1") == ""
        assert moves.retiring([found], "h1", "h11") == why


def test_of_a_run_on_another_machine_it_is_said_where_it_was_begun():
    retired = [{"unit": UNITS[0], "holder": NAME, "run": {"machine": "laptop", "since": "now"}}]
    why = moves.retiring(retired, "h1", "", lambda _: runs.ELSEWHERE)
    assert (
        f"h1: {NAME} is removing {UNITS[0]} since now; whether that run on the machine laptop goes on is not seen"
        in why
    )
    assert "Wait for its end. If it has died, finish it (make decommission HOST=h1), or give it up" in why
    assert moves.retiring(retired, "h1", "h1", lambda _: runs.ELSEWHERE) == ""


# They start or stop nothing by what they see, or not what a decommission has stopped.
ONLY_LOOK = {
    "note.yml": "sorts hosts of a deploy, which has refused",
    "rotate.yml": "brings certificates, and restarts nothing",
    "migrate_prepare.yml": "a host that Apache Kafka runs on has no decommission",
    "migrate_one.yml": "a host that Apache Kafka runs on has no decommission",
    "restore_begin.yml": "an emergency of the whole cluster: systemd starts none that is being removed",
}


def test_whatever_looks_at_brokers_to_start_or_stop_them_leaves_those_alone_that_are_being_removed():
    refuse = set()
    for path in sorted((ROOT / "roles/broker/tasks").glob("*.yml")):
        names = [
            Path(
                str(each.get("ansible.builtin.include_tasks", each.get("ansible.builtin.import_tasks")))
            ).name
            for each in tasks_of(yaml.safe_load(path.read_text()))
        ]
        if "inspect.yml" in names and path.name not in ONLY_LOOK:
            assert names[names.index("inspect.yml") + 1] == "retire_refuse.yml", path.name
            refuse.add(path.name)
    assert refuse == {"main.yml", "planned.yml", "reboot_look.yml", "restart.yml", "roll.yml"}
    looks = (ROOT / "playbooks/restart.yml").read_text()
    assert looks.index("tasks_from: inspect") < looks.index("tasks_from: retire_refuse")
