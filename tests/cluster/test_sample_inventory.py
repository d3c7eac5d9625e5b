"""The sample inventory, copied and with the hosts' addresses put in, deploys: as the user it names, who becomes root.

In a lab of this test's own, whose hosts have nothing but what the sample asks of a host.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab import identity
from rig.wait import wait_until
from rig.wire import cluster_view
from tests.support.deploying import ROOT, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.numbered_load import NumberedLoad, numbers_in
from tools.release import project_version

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

USER = "debian"
VERSION = project_version(ROOT)
# An account as Debian's own images for clouds have it, with the key that root has here.
ACCOUNT = f"""
useradd --create-home --shell /bin/bash {USER}
install --directory --owner={USER} --group={USER} --mode=700 /home/{USER}/.ssh
install --owner={USER} --group={USER} --mode=600 /root/.ssh/authorized_keys /home/{USER}/.ssh/
echo '{USER} ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/{USER}
"""
NEXT = "99.0.0"
EXAMPLE_ADDRESS = re.compile(r"192\.0\.2\.\d+")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The directory with two releases: this checkout's, and one that comes after it."""
    found = tmp_path_factory.mktemp("releases")
    make("release", f"RELEASE_ARGS={release_arguments(found)}")
    following = tmp_path_factory.mktemp("next") / "landline"
    subprocess.run(["git", "clone", "--quiet", ROOT, following], check=True)
    for file in ("pyproject.toml", "broker/__init__.py"):
        path = following / file
        path.write_text(path.read_text().replace(f'"{VERSION}"', f'"{NEXT}"'))
    subprocess.run(
        [sys.executable, "-m", "tools.release", *release_arguments(found).split()],
        cwd=following,
        env={**os.environ, "PYTHONPATH": str(following)},
        check=True,
    )
    return found


def release_arguments(out):
    return f"--out {out} --platform cp311-{platform.machine()} --allow-dirty"


@pytest.fixture(scope="module")
def lab(archives):
    make("wheelhouse")  # for which the network in here is no use
    with lab_session("sample", hosts=3) as lab:
        for host in lab.hosts:
            lab.run(host.name, ACCOUNT)
        with lab.inside():
            yield lab


@pytest.fixture
def inventory(lab, archives, tmp_path, monkeypatch):
    """What an operator does with an editor, and what stands in an operator's ~/.ssh/config."""
    copy = tmp_path / "mine"
    shutil.copytree(ROOT / "inventory/sample", copy)
    hosts = copy / "hosts.yml"
    put_in = {
        example: host.address
        for example, host in zip(
            dict.fromkeys(EXAMPLE_ADDRESS.findall(hosts.read_text())), lab.hosts, strict=True
        )
    }
    hosts.write_text(EXAMPLE_ADDRESS.sub(lambda found: put_in[found[0]], hosts.read_text()))
    settings = copy / "group_vars/all.yml"
    assert f"\nlandline_version: {VERSION}\n" in settings.read_text()
    settings.write_text(f"{settings.read_text()}broker_archive_dir: {archives}\n")
    monkeypatch.setenv("ANSIBLE_PRIVATE_KEY_FILE", str(lab.files.key))
    # Hosts of other labs have the same addresses: shared connections by Ansible's path would lead into these.
    shared = f"-o ControlPath={identity.control_path(lab.files)}"
    monkeypatch.setenv("ANSIBLE_SSH_COMMON_ARGS", f"-F {lab.files.ssh_config} {shared}")
    return hosts


def test_a_firewall_between_brokers_is_told_of(lab, inventory: Path):
    """A new cluster: nobody listened before the start, and whom the controller does not reach is not ready."""
    third = lab.hosts[2]
    close = "add table inet wall; add chain inet wall in { type filter hook input priority 0; }"
    lab.run(third.name, f"nft '{close}; add rule inet wall in iifname != lo tcp dport 9091 drop'")
    shorter = "ANSIBLE_ARGS=--tags zookeeper,broker -e broker_ready_timeout_s=20"
    done = make("deploy", f"INVENTORY={os.path.relpath(inventory, ROOT)}", shorter, check=False)
    lab.run(third.name, "nft delete table inet wall")
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    for name in ("kafka-a", "kafka-b"):
        assert (
            f"{name} cannot connect to broker 3 on kafka-c at {third.address}:9091 (no answer within" in words
        )
    assert "Open these ports" in words


def test_the_sample_with_hosts_put_in_makes_a_cluster_by_a_user_who_becomes_root(lab, inventory: Path):
    make("deploy", f"INVENTORY={os.path.relpath(inventory, ROOT)}")  # again: the wall is gone
    first = lab.hosts[0].address
    view = wait_until(
        lambda: (found := cluster_view(first, BROKER_PORT)) and len(found.ports) == 3 and found, 60
    )
    assert view.controller_id in view.ports
    bootstrap = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3)], operation_timeout=30)["orders"].result(60)
    with NumberedLoad(bootstrap, "orders", 3) as load:
        wait_until(lambda: len(load.acked) > 100, 120)
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "orders", 3)
    for number, host in enumerate(lab.hosts, start=1):
        assert f"broker.rack=rack-{number}\n" in lab.run(host.name, "cat /etc/landline/*.properties").stdout
    again = make("deploy", f"INVENTORY={os.path.relpath(inventory, ROOT)}", "ANSIBLE_ARGS=--check")
    assert re.findall(r"^kafka-.*changed=(\d+)", again.stdout, re.MULTILINE) == ["0"] * 3


def runs(lab):
    """The release that each host's commands and brokers are of, by what they say themselves."""
    said = "readlink /opt/landline/current; /opt/landline/current/venv/bin/landline --version; "
    process = "tr '\\0' ' ' </proc/$(systemctl show --property=MainPID --value 'landline-broker@*')/cmdline"
    return [lab.run(host.name, said + process).stdout for host in lab.hosts]


def test_a_release_that_nobody_has_is_refused_and_nothing_is_touched(lab, inventory: Path):
    before = runs(lab)
    done = make(
        "deploy",
        f"INVENTORY={os.path.relpath(inventory, ROOT)}",
        "ANSIBLE_ARGS=--tags broker -e landline_version=7.0.0",
        check=False,
    )
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert "landline_version is 7.0.0. kafka-a does not have it" in words
    assert runs(lab) == before


def main_pids(lab):
    """The brokers' processes, by their ids."""
    command = "systemctl show --property=MainPID --value 'landline-broker@*'"
    return {
        number: lab.run(host.name, command).stdout.strip() for number, host in enumerate(lab.hosts, start=1)
    }


def planned(inventory, file, settings):
    """A plan, and what was shown of it."""
    done = deploy("plan", inventory, f"PLAN={file}", settings=settings)
    return json.loads(file.read_text()), done.stdout


SLOW = "s/^( +)stats.local_ns \\+= ended - started/\\1time.sleep(0.3); stats.local_ns += time.monotonic_ns() - started/"
TABLE = f"/opt/landline/releases/{NEXT}/venv/lib/python3*/site-packages/broker/server/apis"


def deploy(verb, inventory, *more, check=True, settings="", tags="broker"):
    wanted = f"ANSIBLE_ARGS=--tags {tags} -e landline_version={NEXT} {settings}"
    return make(verb, f"INVENTORY={os.path.relpath(inventory, ROOT)}", wanted, *more, check=check)


def test_a_release_that_is_slow_goes_back_by_itself_and_no_other_broker_is_touched(lab, inventory: Path):
    """Slow by 0.3 s with every request; whatever else clients do, the deploy's own probe is among them."""
    before, pids = runs(lab), main_pids(lab)
    deploy("deploy", inventory, tags="broker_install")
    for host in lab.hosts:
        # What was compiled is not looked at again.
        lab.run(
            host.name,
            f"cd {TABLE} && cp table.py /root/ && sed -E -i '{SLOW}' table.py && rm __pycache__/table.*",
        )
    done = deploy("deploy", inventory, check=False)
    for host in lab.hosts:
        lab.run(host.name, f"cd {TABLE} && mv /root/table.py . && rm -f __pycache__/table.*")
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    worse = re.search(
        r"landline-broker@(\d)\.service on kafka-\w went first and is worse: its \w+ requests take", words
    )
    assert worse is not None
    assert (
        "It went back to the release and the configuration that it had, and is in sync. No other broker was"
        in words
    )
    assert runs(lab) == before
    assert [n for n, pid in main_pids(lab).items() if pid != pids[n]] == [int(worse[1])]
    # What it cost clients is told all the same.
    assert re.search(r"landline\.probe for \d+ s: \d+ records acknowledged, 0 failed, 0 not read", words)
    assert "longest gap" in words


def test_the_next_release_is_rolled_out_and_taken_back_from_what_is_on_the_hosts_under_load(
    lab, inventory: Path
):
    bootstrap = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)
    assert all(f"releases/{VERSION}/" in said and f"releases/{VERSION}\n" in said for said in runs(lab))
    first = len(numbers_in(bootstrap, "orders", 3))
    with NumberedLoad(bootstrap, "orders", 3, first=first) as load:
        wait_until(lambda: len(load.acked) > 100, 120)
        for version, more in ((NEXT, ""), (VERSION, " -e broker_archive_dir=/nonexistent")):
            make(
                "deploy",
                f"INVENTORY={os.path.relpath(inventory, ROOT)}",
                f"ANSIBLE_ARGS=--tags broker -e landline_version={version}{more}",
            )
            for said in runs(lab):
                assert said.startswith(f"releases/{version}\n")
                assert f" {version}\n" in said, "the command"
                assert f"/releases/{version}/" in said, "the process"
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "orders", 3)


def looks_of_last_run(lab):
    """How long the looks of the last apply took, as a host noted it for the next plan."""
    notes = [json.loads(lab.run(host.name, "cat /opt/landline/turns.json").stdout) for host in lab.hosts]
    return next(note["rest"][-1][1] for note in notes if note["rest"])


def test_a_plan_is_what_is_done_and_how_long_it_takes(lab, inventory: Path, tmp_path):
    file, errors = tmp_path / "plan.json", []
    # The first one is by starts, the others by measured turns. A run says nothing if the machine was slower or faster
    # by then than while the plan was made.
    for partitions in (2, 3, 4, 5):
        settings = f'-e \'{{"broker_properties": {{"num.partitions": {partitions}}}}}\''
        plan, said = planned(inventory, file, settings)
        assert [row["action"] for row in plan["brokers"]] == ["restart"] * 3
        assert all(
            row["allowed"] == {"now": True, "why": f"broker {row['id']} may stop"} for row in plan["brokers"]
        )
        assert f"+num.partitions={partitions}" in said
        before = main_pids(lab)
        if partitions == 2:
            # Something on a host is not as it was when the plan was made.
            lab.run("h2", "echo '# by hand' >>/etc/landline/broker-2.properties")
            done = deploy("apply", inventory, f"PLAN={file}", settings=settings, check=False)
            assert done.returncode != 0
            assert "another /etc/landline/broker-2.properties on the host" in re.sub(r"\s+", " ", done.stdout)
            assert main_pids(lab) == before
            plan, _ = planned(inventory, file, settings)
        began = time.monotonic()
        deploy("apply", inventory, f"PLAN={file}", settings=settings)
        took_s = time.monotonic() - began
        assert not set(main_pids(lab).values()) & set(before.values())
        print(f"planned {plan['seconds']} s, took {took_s:.1f} s, measured: {plan['is_measured']}")
        if abs(looks_of_last_run(lab) / plan["look_s"] - 1) <= 0.2:
            errors.append(abs(plan["seconds"] - took_s) / took_s)
        if plan["is_measured"] and min(errors, default=1) <= 0.2:
            break
    assert min(errors, default=0) <= 0.2, errors
    # Nothing is left of it.
    plan, said = planned(inventory, file, settings)
    assert {row["action"] for row in plan["brokers"] + plan["zookeeper"]} == {"unchanged"}
    assert "Nothing to do." in said
