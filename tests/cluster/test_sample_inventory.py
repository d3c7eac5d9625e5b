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
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

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
# The next release has another format of a file, which it writes when inter.broker.protocol.version says so.
PLANTED = {
    "broker/log/checkpoints.py": ("if version != VERSION:", "if version not in (0, 1):"),
    "broker/config/cross_checks.py": (
        "    if not _OLDEST_PROTOCOL <= version",
        """    import broker.log.checkpoints as planted
    planted.VERSION = 1 if get(key) == "3.9-IV1" else 0
    if not _OLDEST_PROTOCOL <= version""",
    ),
}
OLDER_FORMAT = {
    "log.initial.task.delay.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
}
NEWER_FORMAT = {**OLDER_FORMAT, "inter.broker.protocol.version": "3.9-IV1"}
EXAMPLE_ADDRESS = re.compile(r"192\.0\.2\.\d+")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The directory with two releases: this checkout's, and one that comes after it."""
    found = tmp_path_factory.mktemp("releases")
    make("release", f"RELEASE_ARGS={release_arguments(found)}")
    following = tmp_path_factory.mktemp("next") / "landline"
    subprocess.run(["git", "clone", "--quiet", ROOT, following], check=True)
    numbers = dict.fromkeys(("pyproject.toml", "broker/__init__.py"), (f'"{VERSION}"', f'"{NEXT}"'))
    for file, (old, new) in {**numbers, **PLANTED}.items():
        path = following / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
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
    monkeypatch.setenv("ANSIBLE_SSH_COMMON_ARGS", f"-F {lab.files.ssh_config}")
    # Shared connections are found by address and user, and the hosts of all labs have the same addresses.
    monkeypatch.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", f"{lab.files.sockets}/operator")
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


def deploy(inventory, *arguments, check=True):
    """Deploys the brokers."""
    shorter = " ".join(["--tags broker", *arguments])
    return make(
        "deploy", f"INVENTORY={os.path.relpath(inventory, ROOT)}", f"ANSIBLE_ARGS={shorter}", check=check
    )


def assert_all_run(lab, version):
    for said in runs(lab):
        assert said.startswith(f"releases/{version}\n")
        assert f" {version}\n" in said, "the command"
        assert f"/releases/{version}/" in said, "the process"


def runs(lab):
    """The release that each host's commands and brokers are of, by what they say themselves."""
    said = "readlink /opt/landline/current; /opt/landline/current/venv/bin/landline --version; "
    process = "tr '\\0' ' ' </proc/$(systemctl show --property=MainPID --value 'landline-broker@*')/cmdline"
    return [lab.run(host.name, said + process).stdout for host in lab.hosts]


def test_a_release_that_nobody_has_is_refused_and_nothing_is_touched(lab, inventory: Path):
    before = runs(lab)
    done = deploy(inventory, "-e landline_version=7.0.0", check=False)
    assert done.returncode != 0
    words = re.sub(r"\s+", " ", done.stdout)
    assert "landline_version is 7.0.0. kafka-a does not have it" in words
    assert runs(lab) == before


def test_another_content_of_a_release_is_refused_by_a_host_that_has_it(
    lab, inventory: Path, archives, tmp_path
):
    before = runs(lab)
    (manifest,) = archives.glob(f"landline-{VERSION}.json")
    again = tmp_path / "made-again"
    again.mkdir()
    sha256 = re.compile(r'"sha256": "[0-9a-f]{64}"')
    (again / manifest.name).write_text(sha256.sub(f'"sha256": "{"0" * 64}"', manifest.read_text()))
    done = deploy(inventory, f"-e broker_archive_dir={again}", "--limit kafka-a", check=False)
    assert done.returncode != 0
    assert f"kafka-a has {VERSION} from another archive" in re.sub(r"\s+", " ", done.stdout)
    assert runs(lab) == before


def test_the_next_release_is_rolled_out_and_taken_back_from_what_is_on_the_hosts_under_load(
    lab, inventory: Path
):
    bootstrap = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)
    assert all(f"releases/{VERSION}/" in said and f"releases/{VERSION}\n" in said for said in runs(lab))
    first = len(numbers_in(bootstrap, "orders", 3))
    with NumberedLoad(bootstrap, "orders", 3, first=first) as load:
        wait_until(lambda: len(load.acked) > 100, 120)
        deploy(inventory, f"-e landline_version={NEXT}")
        assert_all_run(lab, NEXT)
        on_one = ["--limit kafka-a", f"-e landline_version={NEXT}"]
        deploy(inventory, *on_one, f"-e '{json.dumps({'broker_properties': NEWER_FORMAT})}'")
        before = runs(lab)
        refused = deploy(inventory, f"-e landline_version={VERSION}", check=False)
        assert refused.returncode != 0
        assert "-checkpoint has version 1, known is 0" in re.sub(r"\s+", " ", refused.stdout)
        assert runs(lab) == before
        deploy(inventory, *on_one, f"-e '{json.dumps({'broker_properties': OLDER_FORMAT})}'")
        check = f"/opt/landline/releases/{VERSION}/venv/bin/landline check-config /etc/landline/*.properties"
        wait_until(lambda: lab.run(lab.hosts[0].name, check, check=False).returncode == 0, 120)
        deploy(inventory, f"-e landline_version={VERSION}", "-e broker_archive_dir=/nonexistent")
        assert_all_run(lab, VERSION)
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "orders", 3)
