"""playbooks/reboot.yml on the three-host cluster that LANDLINE_LAB names: an interrupted round, its second half, and
other runs that come in between.

The figures go to the file that FIGURES names, if it does; docs/figures/reboot.json is such a file.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.load import LoadPlan
from lab.errors import LabError
from rig.wait import wait_until
from tests.support.checked_load import assert_no_anomaly, checked_load
from tests.support.deploying import ROOT, changed, make
from tests.support.figures import keep_figures
from tests.support.lab_cluster import LAB_ENV

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(1200)]

PLAN = LoadPlan(topics=1, partitions=6, records_per_s=200, seed=7)
HOSTS = ("h1", "h2", "h3")
MACHINE = os.uname().nodename
NOTE = "/var/lib/landline-reboot"
# What is told of a quiet machine in docs/operations.md, and what one may show that does other things as well.
MOST_S = 1.0 if "FIGURES" in os.environ else 3.0
# A broker that serves again fetches what it missed, and gets its leaderships back.
REPLICATES_S = 15.0
# A host has version 1 of a package, and a mirror has version 2, which needs a reboot.
NEW_PACKAGE = r"""
set -e
mkdir -p /srv/packages && cd /srv/packages
for version in 1 2; do
    mkdir -p $version/DEBIAN
    cat >$version/DEBIAN/control <<END
Package: landline-test
Version: $version
Architecture: all
Maintainer: a <a@example.org>
Description: a test
END
    printf '#!/bin/sh\n[ $1 != configure ] || touch /run/reboot-required\n' >$version/DEBIAN/postinst
    chmod 755 $version/DEBIAN/postinst
    dpkg-deb --build $version $version.deb
done
dpkg -i 1.deb && rm -f /run/reboot-required
(cat 2/DEBIAN/control; echo Filename: ./2.deb; echo Size: $(stat -c %s 2.deb); echo SHA256: $(sha256sum <2.deb)) |
    sed 's/ *-$//' >Packages
echo 'deb [trusted=yes] file:/srv/packages ./' >/etc/apt/sources.list.d/test.list
"""


@pytest.fixture
def load(cluster, tmp_path):
    with checked_load(cluster.bootstrap, PLAN, tmp_path, f"reboot-{os.getpid()}") as load:
        yield load


def boots(lab):
    return {host: boot(lab, host) for host in HOSTS}


def boot(lab, host):
    """Which boot the host runs; empty while it runs none."""
    try:
        done = lab.run_on_console(host, "cat /proc/sys/kernel/random/boot_id", check=False)
    except LabError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def mode(lab, host):
    """What ZooKeeper's server there is: leader or follower."""
    address = lab.host(host).address
    argv = ["bash", "-c", f"exec 3<>/dev/tcp/{address}/2181; printf srvr >&3; grep ^Mode: <&3"]
    return subprocess.run(lab.enter_argv(argv), capture_output=True, text=True, check=True).stdout.split()[1]


def turns(lab, since):
    """When each host's broker was told to stop, and when the next boot's served, in the order of the turns."""
    found = []
    for host in HOSTS:
        command = f"journalctl --output=json --unit=landline-broker@{host[1:]} _PID=1"
        told = [
            (int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6, entry["MESSAGE"].split()[0])
            for entry in map(json.loads, lab.run(host, command).stdout.splitlines())
        ]
        (stopped,) = [at for at, word in told if word == "Stopping" and at > since]
        (served,) = [at for at, word in told if word == "Started" and at > stopped]
        found.append((stopped, served, host))
    return sorted(found)


@contextmanager
def running(lab):
    """The playbook by make, beside the block and to its end."""
    environment = {k: v for k, v in os.environ.items() if k not in {LAB_ENV, "BROKERS_PER_HOST", "MAKEFLAGS"}}
    with tempfile.TemporaryFile("w+") as output:
        argv = ["make", "reboot", f"LAB={lab.name}"]
        with subprocess.Popen(
            argv, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as playing:
            yield playing
        output.seek(0)
        print(output.read())


def begun(lab):
    """Whether a run is at it: it has noted itself anew on a host that it is to reboot."""
    noted = [lab.run_on_console(host, f"tail -n 1 {NOTE}", check=False).stdout for host in HOSTS]
    runs = [json.loads(each) for each in noted if each.startswith("{")]
    return any(Path(f"/proc/{run['pid']}").exists() for run in runs)


def interrupt_when(is_time, lab):
    """Runs the playbook until it is time, then ends it as ^C does."""
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "playbooks/reboot.yml", "-e", "reboot_min_uptime_s=0"]
    with subprocess.Popen(
        lab.enter_argv(argv), cwd=ROOT, env={**os.environ, LAB_ENV: lab.name}, start_new_session=True
    ) as playing:
        wait_until(lambda: is_time() or playing.poll() is not None, 240)
        assert playing.poll() is None
        os.killpg(playing.pid, signal.SIGINT)


def test_all_hosts_are_rebooted_once_in_two_halves_under_load_and_a_third_run_changes_nothing(lab, load):
    before, leader = boots(lab), next(host for host in HOSTS if mode(lab, host) == "leader")
    began = time.monotonic()
    interrupt_when(lambda: any(boot(lab, host) not in {"", before[host]} for host in HOSTS), lab)
    first = boots(lab)
    dry = make("reboot", f"LAB={lab.name}", "ANSIBLE_ARGS=--check").stdout
    assert boots(lab) == first
    with running(lab) as second:
        wait_until(lambda: begun(lab), 240, what="it has begun")
        words = re.sub(r"\s+", " ", make("reboot", f"LAB={lab.name}", check=False).stdout)
        assert second.poll() is None, "the run that was to be met had ended"
    assert second.returncode == 0
    ended = time.monotonic()
    load.await_progress(500, timeout_s=120)
    after = boots(lab)
    (rebooted,) = [host for host in HOSTS if first[host] != before[host]]
    assert after[rebooted] == first[rebooted]
    assert all(after[host] != before[host] for host in HOSTS)
    # A dry run gives nothing back of what the first half left: it says who has the permit, and for whom.
    told = rf"broker \d may not stop: the permit is held by \S+ \(run \w+\) for broker {rebooted[1:]} since"
    assert len(re.findall(told, re.sub(r"\s+", " ", dry))) == 2
    # Who came while it went on was told whose hosts these are, and took nothing from it.
    came = (
        rf"Nothing was touched: \S+ \(run \w+\) reboots hosts of these since \S+ \S+Z, from .* {MACHINE}\. .*"
    )
    assert re.search(f"{came}It goes on, as process \\d+ there", words)
    order = turns(lab, began)
    assert order[-1][2] == leader
    longest_s = load.worst_gap_s(began, ended)
    rows = [
        {
            "host": host,
            "down_s": served - stopped,
            "longest_gap_s": load.worst_gap_s(stopped, min(served + REPLICATES_S, ended)),
        }
        for stopped, served, host in order
    ]
    whole = {
        "took_s": ended - began,
        "records": load.acked(),
        "lost": 0,
        "longest_gap_s": longest_s,
    }
    assert_no_anomaly(lab, load, HOSTS)
    assert load.failed() == 0
    keep_figures("reboot", whole, rows)
    assert longest_s < MOST_S, rows
    assert changed(make("reboot", f"LAB={lab.name}").stdout) == dict.fromkeys(HOSTS, 0)
    assert boots(lab) == after


def test_a_run_of_another_machine_that_has_the_permit_keeps_this_one_away_until_it_is_said_to_be_over(lab):
    """As it is left when the machine that runs Ansible is lost between the permit and the reboot."""
    holder = "somebody@elsewhere (run abc123)"
    run = json.dumps({"machine": "elsewhere", "since": "2026-11-27 10:03:11Z", "pid": 1, "boot": "its own"})
    before = boots(lab)
    turn = (
        f"/opt/landline/current/venv/bin/landline {{}} /etc/landline/broker-1.properties --holder='{holder}'"
    )
    lab.run("h1", f"{turn.format('may-stop')} --within=120 --for=600", timeout_s=150)
    lab.run("h1", ["sh", "-c", f"printf '%s\\n' {before['h1']} '{holder}' '{run}' >{NOTE}"])
    try:
        refused = make("reboot", f"LAB={lab.name}", check=False)
        dry = make("reboot", f"LAB={lab.name}", "ANSIBLE_ARGS=--check -e reboot_take_over=abc123")
        assert boots(lab) == before
        done = make("reboot", f"LAB={lab.name}", "ANSIBLE_ARGS=--limit h1 -e reboot_take_over=abc123")
    finally:
        lab.run("h1", f"{turn.format('await-return')} --within=0; rm -f {NOTE}", check=False)
    words = re.sub(r"\s+", " ", refused.stdout)
    assert refused.returncode != 0
    assert (
        f"Nothing was touched: {holder} reboots hosts of these since 2026-11-27 10:03:11Z, from the" in words
    )
    assert re.search(
        r"It has the stop permit for broker 1 since \S+ \S+Z\. Whether it goes on is not seen", words
    )
    assert re.search(r"is free in \d+ s at most; -e reboot_take_over=abc123 does not wait", words)
    assert "the permit is held by somebody@elsewhere" in re.sub(r"\s+", " ", dry.stdout)
    assert changed(done.stdout)["h1"] > 0
    assert {host for host in HOSTS if boot(lab, host) != before[host]} == {"h1"}


def test_packages_are_upgraded_first_and_only_the_host_that_needs_it_then_is_rebooted(lab, cluster):
    before = boots(lab)
    lab.run("h1", ["bash", "-c", NEW_PACKAGE])
    wanted = "ANSIBLE_ARGS=-e reboot_only_needed=true -e reboot_upgrade=true"
    try:
        done = make("reboot", f"LAB={lab.name}", wanted)
        assert lab.run("h1", "dpkg-query -W -f '${Version}' landline-test").stdout == "2"
        assert (changed(done.stdout)["h1"] > 0, changed(done.stdout)["h2"], changed(done.stdout)["h3"]) == (
            True,
            0,
            0,
        )
        assert {host for host in HOSTS if boot(lab, host) != before[host]} == {"h1"}
        assert changed(make("reboot", f"LAB={lab.name}", wanted).stdout) == dict.fromkeys(HOSTS, 0)
    finally:
        lab.run("h1", "dpkg --purge landline-test; rm -r /srv/packages /etc/apt/sources.list.d/test.list")
