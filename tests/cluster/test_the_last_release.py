"""From the release before this one to this one and back, under load, each from its own checkout and its own archives.

On three hosts of this module's own. The release before is made from its commit, which needs the repository's history.
"""

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from chaos.load import LoadPlan
from tests.support.checked_load import assert_no_anomaly, checked_load
from tests.support.deploying import ROOT, changed, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.next_release import VERSION
from tests.support.sample_inventory import assert_all_run

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(2400)]

PLAN = LoadPlan(topics=1, partitions=6, records_per_s=200, seed=13)
FOR_THESE_HOSTS = f"--platform cp311-{platform.machine()}"
SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


@dataclass(frozen=True)
class Release:
    """A version, the checkout that deploys it, and the directory of its archives."""

    version: str
    checkout: Path
    archives: Path

    def deploy(self, inventory, *more):
        """What its deploy.yml says; it must succeed."""
        settings = f"landline_version={self.version} broker_archive_dir={self.archives}"
        argv = [".venv/bin/ansible-playbook", "-i", str(inventory), "deploy.yml", "-e", settings, *more]
        done = subprocess.run(argv, cwd=self.checkout, capture_output=True, text=True, check=False)
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return done.stdout


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def this(tmp_path_factory):
    archives = tmp_path_factory.mktemp("this")
    make("release", f"RELEASE_ARGS=--out {archives} {FOR_THESE_HOSTS} --allow-dirty")
    return Release(VERSION, ROOT, archives)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The release before this one: what was committed last with its version."""
    raised = git("log", "--format=%H", "-1", "-G^__version__ = ", "--", "broker/__init__.py").strip()
    checkout = tmp_path_factory.mktemp("before") / "landline"
    git("clone", "--quiet", ".", str(checkout))
    git("-C", str(checkout), "checkout", "--quiet", f"{raised}^")
    (version,) = re.findall(
        r'^__version__ = "(.+)"', (checkout / "broker/__init__.py").read_text(), re.MULTILINE
    )
    assert version != VERSION
    subprocess.run(["make", "setup"], cwd=checkout, check=True)
    # Pure Python, so that compiled code and Python read what the other has written.
    subprocess.run(["make", "release", f"RELEASE_ARGS={FOR_THESE_HOSTS} --pure"], cwd=checkout, check=True)
    return Release(version, checkout, checkout / "build/release")


@pytest.fixture(scope="module")
def lab(this, before):
    with lab_session("last", hosts=3) as lab, lab.inside():
        yield lab


@pytest.fixture
def inventory(lab, tmp_path):
    settings = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(lab.files.key),
        "ansible_ssh_common_args": f"{SSH} -o ControlPath={lab.files.sockets}/last-%h",
    }
    hosts = {"hosts": {f"kafka-{host.name}": {"ansible_host": host.address} for host in lab.hosts}}
    groups = {"zookeeper": hosts, "brokers": hosts}
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"all": {"vars": settings, "children": groups}}))
    return file


def test_the_last_release_becomes_this_one_and_this_one_the_last_under_load(
    lab, inventory, before, this, tmp_path
):
    """With groups and transactions under way; the second run of each changes nothing."""
    before.deploy(inventory)
    bootstrap = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)
    with checked_load(bootstrap, PLAN, tmp_path, "last") as load:
        for release in (this, before, this):
            release.deploy(inventory)
            assert_all_run(lab, release.version)
            assert set(changed(release.deploy(inventory, "--check")).values()) == {0}
            load.await_progress(100, timeout_s=120)
        assert_no_anomaly(lab, load, [host.name for host in lab.hosts])
        assert load.failed() == 0
