"""A host with three brokers, from nothing to nothing, in a lab of this module's own."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from lab import Lab
from rig.wait import wait_until
from tests.support.deploying import ROOT, changed, make
from tests.support.lab_cluster import LAB_ENV
from tests.support.labs import assert_no_trace, skip_without_hosts
from tools.inventory import Inventory

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def lab():
    skip_without_hosts()
    name = f"t-single-{os.getpid()}"
    try:
        make("cluster-up", f"LAB={name}", "HOSTS=1", "BROKERS_PER_HOST=3", quick=False)
        yield Lab(name)
    finally:
        make("cluster-down", f"LAB={name}")
    assert_no_trace(name)


def test_one_host_runs_three_brokers(lab):
    # Later verbs mean the same cluster: the numbers of hosts and brokers are not said again.
    again = make("deploy", f"LAB={lab.name}", "ANSIBLE_ARGS=--tags broker")
    assert changed(again.stdout) == {"h1": 0}
    status = make("status", f"LAB={lab.name}").stdout
    source = {**os.environ, LAB_ENV: lab.name, "BROKERS_PER_HOST": "3"}
    listing = subprocess.run(
        [sys.executable, "inventory/lab.py", "--list"],
        cwd=ROOT,
        env=source,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    brokers = Inventory(json.loads(listing)).brokers()
    assert [(b.broker_id, b.port, b.internal_port, b.http_port) for b in brokers] == [
        (1, 9092, 9091, 8092),
        (2, 9102, 9101, 8102),
        (3, 9112, 9111, 8112),
    ]
    assert all(f"│ {broker.broker_id} " in status for broker in brokers)


def files(lab, broker_id):
    return lab.run(
        "h1",
        f"cat /etc/landline/broker-{broker_id}.* /etc/systemd/system/landline-broker@{broker_id}.service",
    ).stdout


def runs(lab, broker_id):
    """The process, the release that it is of, and what it was started with."""
    pid = lab.run(
        "h1", f"systemctl show --property=MainPID --value landline-broker@{broker_id}"
    ).stdout.strip()
    line = lab.run("h1", f"tr '\\0' ' ' </proc/{pid}/cmdline", check=False).stdout
    environment = lab.run("h1", f"tr '\\0' '\\n' </proc/{pid}/environ", check=False).stdout
    release = re.search(r"/opt/landline/releases/([^/]+)/", line)
    fingerprint = re.search(r"^LANDLINE_FINGERPRINT=(\w+)$", environment, re.MULTILINE)
    return pid, release and release[1], fingerprint and fingerprint[1]


def another_release(directory):
    """The same code under another name."""
    shutil.copytree(ROOT / "build" / "dist", directory)
    told = json.loads((directory / "release.json").read_text())
    told["release"] += "-other"
    (directory / "release.json").write_text(json.dumps(told))
    return told["release"]


def test_a_broker_whose_turn_is_refused_starts_again_as_it_ran_though_its_neighbours_rolled(lab, tmp_path):
    note = "/var/lib/landline/broker-2/.landline-session"
    lab.run("h1", f"sed --in-place 's/^session.id=1/session.id=2/' {note}")  # as if another had its id
    before, kept = {n: runs(lab, n) for n in (1, 2, 3)}, files(lab, 2)
    current = lab.run("h1", "readlink /opt/landline/current").stdout
    other = another_release(tmp_path / "dist")
    variables = {
        "broker_dist_dir": str(tmp_path / "dist"),
        "broker_properties": {"num.partitions": 2},
        "broker_roll_timeout_s": 15,
    }
    arguments = f"ANSIBLE_ARGS=--tags broker -e {shlex.quote(json.dumps(variables))}"
    done = make("deploy", f"LAB={lab.name}", arguments, check=False)
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert "Not restarted, files as they were" in words
    assert "broker 2 may not stop: broker id 2 is registered by another process than this host's" in words
    after = {n: runs(lab, n) for n in (1, 2, 3)}
    assert after[2] == before[2]
    assert [after[n][1] for n in (1, 3)] == [other, other]
    assert files(lab, 2) == kept
    assert lab.run("h1", "readlink /opt/landline/current").stdout == current

    lab.run("h1", "systemctl kill --signal=KILL landline-broker@2")
    wait_until(lambda: runs(lab, 2)[1] and runs(lab, 2)[0] != before[2][0], 60, what="it is started again")
    assert runs(lab, 2)[1:] == before[2][1:]

    variables["broker_roll_timeout_s"] = 90
    make("deploy", f"LAB={lab.name}", f"ANSIBLE_ARGS=--tags broker -e {shlex.quote(json.dumps(variables))}")
    assert runs(lab, 2)[1] == other
    assert {n: runs(lab, n) for n in (1, 3)} == {n: after[n] for n in (1, 3)}
    assert other in lab.run("h1", "readlink /opt/landline/current").stdout
