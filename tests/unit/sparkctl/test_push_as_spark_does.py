"""The launcher beside Spark's own scripts: what reaches ssh, the daemons' environment, and what is left behind.

pyspark's package lacks ``start-all.sh`` and what that calls, so what they do was recorded once, in the same
rig: tests/data/spark_start_all.json. ``SPARK_SBIN`` names a directory with Spark's scripts to hold the record
against them.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment, FileSystemLoader, Template

from rig.wait import wait_until
from sparkctl import commands
from sparkctl.commands import Role
from sparkctl.inventory import Host, SparkCluster
from tests.support.spark_rig import HOSTS, SparkRig, record

ROLE = Path(__file__).parents[3] / "roles/spark"
RECORD = Path(__file__).parents[2] / "data/spark_start_all.json"
SPARK = json.loads(RECORD.read_text())
FORMS = pytest.mark.parametrize("form", ["parallel", "sequential"])
# How the person asked for one form or the other.
NOT_THE_DAEMONS = "SPARK_SSH_FOREGROUND="


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """By form, what our launch does: its master's command, then its push."""
    found = {}
    for form in SPARK:
        rig = SparkRig(tmp_path_factory.mktemp(form))
        hosts = [Host(f"h{number}", address, address) for number, address in enumerate(HOSTS, 1)]
        cluster = SparkCluster(hosts[0], tuple(hosts), home=str(rig.home), conf_dir=str(rig.conf))
        pushes = [(host, commands.start_command(cluster, Role.WORKER, host)) for host in hosts]
        try:
            rig.run(["bash", "-c", commands.start_command(cluster, Role.MASTER, hosts[0])])
            rig.run(["bash", "-c", commands.push_script(pushes, parallel=form == "parallel", stamped=True)])
            found[form] = rig.recorded()
        finally:
            rig.close()
    return found


def environment(daemon):
    return [line for line in daemon["environment"] if not line.startswith(NOT_THE_DAEMONS)]


def words(daemon):
    """The daemon's command without the address that we name and Spark guesses."""
    text = daemon["command"].replace(f"--host {daemon['host']} ", "")
    return daemon["host"], text.split()


def test_hosts_are_reached_in_the_lists_order_when_one_waits_for_the_other(ours):
    assert [call["host"] for call in ours["sequential"]["ssh"]] == list(HOSTS)
    assert [call["host"] for call in SPARK["sequential"]["ssh"]] == list(HOSTS)


@FORMS
def test_ssh_reaches_every_host_once_the_masters_own_too(ours, form):
    assert sorted(call["host"] for call in ours[form]["ssh"]) == sorted(HOSTS)
    assert sorted(call["host"] for call in SPARK[form]["ssh"]) == sorted(HOSTS)


@FORMS
def test_the_same_daemons_are_started_with_the_same_words(ours, form):
    assert [words(daemon) for daemon in ours[form]["daemons"]] == [words(d) for d in SPARK[form]["daemons"]]


@FORMS
def test_the_daemons_have_the_same_environment(ours, form):
    assert [environment(daemon) for daemon in ours[form]["daemons"]] == [
        environment(daemon) for daemon in SPARK[form]["daemons"]
    ]


@FORMS
def test_the_same_pid_and_log_files_are_left_behind(ours, form):
    assert ours[form]["files"] == SPARK[form]["files"]


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_unit_runs_the_same_daemon_in_the_same_environment(tmp_path, role):
    rig = SparkRig(tmp_path)
    pairs, command = unit(rig, role)
    with rig.foreground(command, **pairs):
        wait_until(lambda: rig.recorded()["daemons"], what="the daemon was started")
    (daemon,) = rig.recorded()["daemons"]
    known = next(d for d in SPARK["parallel"]["daemons"] if f".{role}." in d["command"])
    assert words(daemon) == words(known)
    assert environment(daemon) == environment(known)


def unit(rig, role):
    """The environment and program line of a unit of the role, on the master's host, as systemd reads them."""
    settings = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    settings |= {"spark_home": str(rig.home), "spark_conf_dir": str(rig.conf), "spark_daemon_host": HOSTS[0]}
    settings["spark_master_url"] = f"spark://{HOSTS[0]}:7077"
    inner = yaml.safe_load((ROLE / "vars/main.yml").read_text())["spark_unit_environment"]
    settings["spark_unit_environment"] = Template(inner).render(settings)
    templates = Environment(loader=FileSystemLoader(ROLE / "templates"), autoescape=False)
    text = templates.get_template(f"landline-spark-{role}.service.j2").render(settings)
    lines = dict(line.split("=", 1) for line in text.replace("\\\n", " ").splitlines() if "=" in line)
    return dict(word.split("=") for word in lines["Environment"].split()), shlex.split(lines["ExecStart"])


@pytest.mark.skipif(
    not os.environ.get("SPARK_SBIN"), reason="SPARK_SBIN names no directory of Spark's scripts"
)
def test_the_record_is_what_sparks_scripts_do(tmp_path):
    record(tmp_path, Path(os.environ["SPARK_SBIN"]), tmp_path / "again.json")
    again = json.loads((tmp_path / "again.json").read_text())
    for form, known in SPARK.items():
        assert sorted(map(str, again[form].pop("ssh"))) == sorted(map(str, known["ssh"]))
        assert again[form] == {key: value for key, value in known.items() if key != "ssh"}
