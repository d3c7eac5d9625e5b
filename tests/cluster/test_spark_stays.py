"""Spark with a standby master, a secret and several workers per host, on the hosts of ``make cluster-up``.

The hosts are deployed with an inventory of this test's own. The next deploy with another one takes that back.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pyspark
import pytest

from lab import Lab
from rig.processes import ManagedProcess
from rig.wait import wait_until
from sparkctl.master import fetch_view
from tests.support import cached_job
from tests.support.deploying import changed
from tests.support.fabric import ROOT, fab, fab_ok, submitted
from tests.support.lab_cluster import LAB_ENV, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(1200)]

HOSTS = ("h1", "h2", "h3")
SECRET = "sesame-of-the-test-42"
MORE = f"""
spark_master: {{hosts: {{h2: }}}}
spark_workers:
  hosts:
    h2: {{spark_workers_per_host: 2}}
  vars: {{spark_auth_secret: {SECRET}}}
"""
UNIT = "landline-spark-worker"
MASTER = "org.apache.spark.deploy.master.Master"
JOB = Path(cached_job.__file__)
# What is upgraded is unpacked here; the lab's own Spark is a mount that nobody writes to.
UNPACKED = "/opt/spark-unpacked"


@pytest.fixture(scope="module")
def lab():
    with running_cluster():
        yield Lab(os.environ[LAB_ENV])


@pytest.fixture(scope="module")
def shared(lab):
    """A directory that all hosts share, to which executors of any user may write."""
    (bind,) = [bind for bind in lab.state.binds if bind.writable and bind.source == bind.target]
    path = Path(bind.target) / f"stays-{os.getpid()}"
    path.mkdir()
    path.chmod(0o2777)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def inventory(lab, tmp_path_factory):
    """The lab's, with another master, another worker on h2, and a secret."""
    path = tmp_path_factory.mktemp("inventory")
    (path / "1-lab.py").symlink_to(ROOT / "inventory/lab.py")
    (path / "2-more.yml").write_text(MORE)
    (path / "group_vars").symlink_to(ROOT / "inventory/group_vars")
    return path


@pytest.fixture(scope="module")
def deployed(lab, inventory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANDLINE_INVENTORY", str(inventory))
        fab("stop")
        output = deploy(inventory, "--diff")
        assert SECRET not in output
        assert re.findall(r"^\+.*spark.auth", output, re.MULTILINE) == []
        fab_ok("start")
        yield output
        lab.run("h3", f"systemctl stop {UNIT}; rm -rf /opt/spark-next /opt/spark-next.old")
        fab("stop")


def deploy(inventory, *arguments, code=0):
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [playbook, "-i", inventory, "playbooks/spark.yml", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == (code != 0), done.stdout[-3000:] + done.stderr
    return done.stdout


def view(lab, host):
    return fetch_view(f"http://{lab.host(host).address}:8080")


def leads(lab, host):
    found = view(lab, host)
    return found is not None and found.status == "ALIVE" and len(found.alive_hosts()) == 3


@pytest.fixture
def job(shared, deployed, tmp_path):
    """The job, not started yet; with as many executors as there are workers when its tasks begin."""
    ratio = (
        "spark.scheduler.minRegisteredResourcesRatio=1 spark.scheduler.maxRegisteredResourcesWaitingTime=5m"
    )
    made = submitted(str(JOB), [str(shared)], tmp_path / "job.log", cores=4, more=ratio)
    yield made
    end(made)


def end(process):
    if process.running:
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def computes(job, site):
    """Starts the job, and waits until its numbers are in the memory of the executors."""
    job.start()
    wait_until(
        lambda: (site / "cached").exists() or not job.running, timeout=400, interval=0.5, what=job.log_tail
    )
    assert job.running, job.log_tail()


def computed(site):
    return {path.suffix[1:]: path.read_text().split() for path in site.glob("computed.*")}


def archive_of(version, path):
    """What the role takes for Spark: an archive with its version and its program."""
    package = path / "pyspark"
    (package / "bin").mkdir(parents=True, exist_ok=True)
    (package / "bin/spark-submit").write_text("#!/bin/sh\n")
    (package / "bin/spark-submit").chmod(0o755)
    (package / "version.py").write_text(f"__version__: str = '{version}'\n")
    with tarfile.open(path / f"{version}.tar.gz", "w:gz") as archive:
        archive.add(package, "pyspark")
    return path / f"{version}.tar.gz"


def directory_of_a_job(shared, name):
    """Where a job writes, on all hosts, as whoever it runs as."""
    path = shared / name
    path.mkdir()
    path.chmod(0o2777)
    return path


def test_a_job_outlives_its_master_and_keeps_the_blocks_of_a_worker_that_is_taken_away(
    deployed, lab, shared, inventory, job, tmp_path
):
    assert fab_ok("status").count("ALIVE") == 5
    # h3's worker is its unit's: executors work in that sandbox, too.
    fab_ok("workers", "--remove", "h3")
    lab.run("h3", f"systemctl start {UNIT}")
    wait_until(lambda: leads(lab, "h1"), timeout=60)
    computes(job, shared)
    where = computed(shared)
    assert set(where) == {"h1", "h2", "h3"}
    seen = "ps axww --no-headers --format args"
    for command in (subprocess.getoutput(seen), *(lab.run(host, seen).stdout for host in where)):
        assert "CoarseGrainedExecutorBackend" in command or "SparkSubmit" in command
        assert SECRET not in command

    lab.run("h1", f"pkill --signal KILL --full {MASTER}")
    nobody_else_runs_code(lab, tmp_path)
    install_version(inventory, archive_of("9.1.0", tmp_path))
    refused = install_version(inventory, archive_of("9.2.0", tmp_path), code=2)
    assert "Spark 9.1.0 runs on h3 and is to become 9.2.0. Nothing was changed." in " ".join(refused.split())
    wait_until(lambda: leads(lab, "h2"), timeout=180, interval=0.5, what="the standby took over")
    assert "cached" in fab_ok("jobs", base="h2")

    fab_ok("workers", "--remove", "h2", base="h2")
    (shared / "go").touch()
    wait_until(lambda: not job.running, timeout=200, interval=0.5, what=job.log_tail)
    assert job.exit_code == 0, job.log_tail()
    assert (shared / "sum").read_text() == str(sum(range(cached_job.NUMBERS)))
    assert computed(shared) == where, "blocks were lost, and computed again"
    wait_until(lambda: "cached" in names_of_history(lab), timeout=60, what="the history server shows the job")


def nobody_else_runs_code(lab, tmp_path):
    """A driver without the secret: the standby, which answers meanwhile, does not even listen to it."""
    url = f"spark://{lab.host('h2').address}:7077"
    submit = str(Path(sys.executable).with_name("spark-submit"))
    command = [submit, "--master", url, str(JOB), str(tmp_path)]
    finds_modules = {"PYTHONPATH": str(ROOT)}
    stranger = ManagedProcess("stranger", lambda: command, tmp_path / "stranger.log", finds_modules, cwd=ROOT)
    stranger.start()
    try:
        wait_until(
            lambda: "Failed to connect to master" in stranger.log_text(), timeout=120, what=stranger.log_tail
        )
    finally:
        end(stranger)
    assert "SASL" in stranger.log_text() or "RpcEnv" in stranger.log_text(), stranger.log_tail()


def install_version(inventory, archive, code=0):
    """Beside the Spark that runs, on h3."""
    known = ("-espark_home=/opt/spark-next", f"-espark_archive={archive}")
    return deploy(inventory, "--limit=h3", "--tags=spark_install", *known, code=code)


def names_of_history(lab):
    with urlopen(f"http://{lab.host('h1').address}:18080/api/v1/applications", timeout=10) as answer:
        return [found["name"] for found in json.load(answer)]


def test_another_version_takes_the_place_of_one_that_is_stopped(deployed, lab, inventory, tmp_path):
    lab.run("h3", f"systemctl stop {UNIT}")
    install_version(inventory, archive_of("9.2.0", tmp_path))
    found = lab.run("h3", "cat /opt/spark-next/version.py /opt/spark-next.old/version.py").stdout
    assert re.findall(r"'(.*)'", found) == ["9.2.0", "9.1.0"]


def test_all_daemons_restart_and_a_job_is_ended_by_its_name(deployed, lab, shared, tmp_path):
    pids = {host: masters(lab, host) for host in ("h1", "h2")}
    fab_ok("restart", base="h2")
    assert all(masters(lab, host) not in ("", was) for host, was in pids.items())
    site = directory_of_a_job(shared, "ended")
    doomed = submitted(str(JOB), [str(site)], tmp_path / "doomed.log", cores=2)
    try:
        computes(doomed, site)
        refused = fab("kill", "nobody")
        assert refused.returncode != 0
        assert "0 jobs that run or wait are called nobody" in refused.stdout + refused.stderr
        assert "killed: app-" in fab_ok("kill", "cached")
        (site / "go").touch()  # for which the driver waits, whatever becomes of its executors
        wait_until(lambda: not doomed.running, timeout=120, interval=0.5, what=doomed.log_tail)
        assert doomed.exit_code != 0
        assert re.search(r"cached +│ +KILLED", fab_ok("jobs"))
    finally:
        end(doomed)


def masters(lab, host):
    return lab.run(host, f"pgrep --full {MASTER}", check=False).stdout


def spark_archive_of(version, path):
    """The Spark of this checkout, packed as `make spark-archive` does, but with another version."""
    packed = Path(pyspark.__file__).parent
    said = path / "version.py"
    said.write_text(f"__version__: str = '{version}'\n")

    def kept(entry):
        return None if entry.name == "pyspark/version.py" or "__pycache__" in entry.name else entry

    with tarfile.open(path / "spark.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(said, "pyspark/version.py")
        archive.add(packed, "pyspark", filter=kept)
    return path / "spark.tar.gz"


def executors(lab, host):
    found = lab.run(host, "pgrep --full --list-full CoarseGrainedExecutorBackend", check=False).stdout
    return [line for line in found.splitlines() if "java" in line]


@pytest.fixture
def unpacked(deployed, lab, inventory):
    """All hosts have a Spark of their own disks, which runs; the function changes what the inventory says of it."""
    more = inventory / "3-unpacked.yml"

    def becomes(**variables):
        more.write_text(json.dumps({"all": {"vars": {"spark_home": UNPACKED, **variables}}}))

    fab_ok("stop")
    for host in HOSTS:
        lab.run(host, f"rm -rf {UNPACKED}* && cp -a /opt/spark {UNPACKED}")
    becomes()
    deploy(inventory)
    fab_ok("start")
    yield becomes
    fab("stop")
    with suppress(FileNotFoundError):
        more.unlink()
    deploy(inventory)
    for host in HOSTS:
        lab.run(host, f"rm -rf {UNPACKED}*")


def test_the_daemons_and_a_job_run_on_the_version_that_an_upgrade_brought(
    unpacked, lab, shared, inventory, tmp_path
):
    unpacked(spark_archive=str(spark_archive_of("99.0.0", tmp_path)))
    refused = " ".join(deploy(inventory, code=2).split())
    for host in HOSTS:
        assert f"Spark {pyspark.__version__} runs on {host} and is to become 99.0.0" in refused
    fab_ok("stop")
    deploy(inventory)
    for host in HOSTS:
        found = lab.run(host, f"cat {UNPACKED}/version.py {UNPACKED}.old/version.py").stdout
        assert re.findall(r"'(.*)'", found) == ["99.0.0", pyspark.__version__]
        # Nothing of what ran before is used.
        lab.run(host, f"rm -rf {UNPACKED}.old")
    fab_ok("start")
    wait_until(lambda: leads(lab, "h1"), timeout=60)
    site = directory_of_a_job(shared, "upgraded")
    upgraded = submitted(str(JOB), [str(site)], tmp_path / "upgraded.log", cores=4)
    try:
        computes(upgraded, site)
        where = computed(site)
        assert where
        for host in where:
            commands = executors(lab, host)
            assert commands
            assert all(f"{UNPACKED}/jars/" in command for command in commands)
        (site / "go").touch()
        wait_until(lambda: not upgraded.running, timeout=200, interval=0.5, what=upgraded.log_tail)
        assert upgraded.exit_code == 0, upgraded.log_tail()
        assert (site / "sum").read_text() == str(sum(range(cached_job.NUMBERS)))
    finally:
        end(upgraded)
    assert set(changed(deploy(inventory)).values()) == {0}
