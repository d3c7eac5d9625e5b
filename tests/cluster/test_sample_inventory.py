"""The sample inventory, copied and with the hosts' addresses put in, deploys: as the user it names, who becomes root.

In a lab of this test's own, whose hosts have nothing but what the sample asks of a host, and are reached as hosts of
operators are (operators_hosts): by ssh at another port behind a bastion. The data is on two mounted disks, and the
services have addresses of their own.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from lab import Bind
from rig.wait import wait_until
from rig.wire import cluster_view
from sparkctl.inventory import host_port
from tests.support.deploying import ROOT
from tests.support.elsewhere import Elsewhere
from tests.support.fabric import fab, fab_ok
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.next_release import NEWER_FORMAT, NEXT, OLDER_FORMAT, VERSION
from tests.support.numbered_load import NumberedLoad, numbers_in
from tests.support.operators_hosts import (
    DISKS,
    only_the_bastion_is_reached,
    prepare,
    service_address,
    sudo_asks,
)
from tests.support.sample_inventory import (
    assert_all_run,
    bootstrap_servers,
    deploy,
    filled_in,
    make_with,
    runs,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

PYSPARK = Path(pyspark.__file__).parent
SUBMIT, EXAMPLES = "/opt/spark/bin/spark-submit", "/opt/spark/examples/src/main/python"
# The workers have no more.
SMALL = "--conf spark.executor.memory=512m"


@pytest.fixture(scope="module")
def lab(archives):
    with lab_session("sample", hosts=3, binds=[Bind(str(PYSPARK), "/opt/spark")]) as lab:
        prepare(lab)
        with lab.inside():
            yield lab


@pytest.fixture
def inventory(lab, archives, tmp_path, monkeypatch):
    hosts = filled_in(lab, tmp_path, archives)
    monkeypatch.setenv("LANDLINE_INVENTORY", str(hosts))
    # Shared connections are found by address and user, and the hosts of all labs have the same addresses.
    monkeypatch.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", f"{lab.files.sockets}/operator")
    return hosts


@pytest.fixture(scope="module")
def bootstrap(lab):
    return bootstrap_servers(lab)


def test_a_firewall_between_brokers_is_told_of(lab, inventory: Path):
    """A new cluster: nobody listened before the start, and whom the controller does not reach is not ready."""
    third = lab.hosts[2]
    close = "add table inet wall; add chain inet wall in { type filter hook input priority 0; }"
    lab.run(third.name, f"nft '{close}; add rule inet wall in iifname != lo tcp dport 9091 drop'")
    shorter = "--tags zookeeper,broker -e broker_ready_timeout_s=20"
    done = make_with(inventory, "deploy", arguments=shorter, check=False, quick=False)
    lab.run(third.name, "nft delete table inet wall")
    assert done.returncode != 0
    words, closed = re.sub(r"\s+", " ", done.stdout), host_port(service_address(third), 9091)
    for name in ("kafka-a", "kafka-b"):
        assert f"{name} cannot connect to broker 3 on kafka-c at {closed} (no answer within" in words
    assert "Open these ports" in words


def test_the_sample_with_hosts_put_in_makes_a_cluster_through_a_bastion_by_a_user_who_becomes_root(
    lab, inventory: Path, tmp_path, monkeypatch
):
    master = f"spark://{host_port(service_address(lab.hosts[0]), 7077)}"
    with sudo_asks(lab) as password, only_the_bastion_is_reached(lab):
        with pytest.raises(OSError):
            cluster_view(lab.hosts[0].address, BROKER_PORT)
        # Again: the wall between brokers is gone.
        done = make_with(inventory, "deploy", arguments="-K", answer=f"{password}\n", quick=False)
        # For which the network in here would be no use.
        assert f"nothing is built: release {VERSION} is deployed" in done.stdout
        refused = make_with(inventory, "smoke", check=False)
        assert "make smoke needs sudo without a password" in refused.stdout
        refused = fab("start")
        assert refused.returncode == 1
        assert "wants a password: give --prompt-for-sudo-password" in refused.stdout + refused.stderr
        with monkeypatch.context() as home:
            home.setenv("HOME", str(tmp_path))
            (tmp_path / ".fabric.yml").write_text(yaml.safe_dump({"sudo": {"password": password}}))
            fab_ok("start")
    with only_the_bastion_is_reached(lab):
        make_with(inventory, "smoke")
        shown = make_with(inventory, "status").stdout
        assert shown.count("RunningAs") == 3
        assert fab_ok("status").count("ALIVE") >= 4
    # On a host of the executors' network, as they have to reach the driver.
    driver = host_port(service_address(lab.hosts[0]), 0).removesuffix(":0")
    known = f"--conf spark.driver.host={driver} --conf spark.driver.bindAddress={driver} {SMALL}"
    job = f". /etc/spark/spark-env.sh && {SUBMIT} --master {master} {known} {EXAMPLES}/pi.py 2"
    assert "Pi is roughly 3.1" in lab.run("h1", f"runuser -u spark -- bash -c '{job}'", timeout_s=180).stdout
    with only_the_bastion_is_reached(lab):
        fab_ok("stop")
    again = make_with(inventory, "deploy", arguments="--check")
    assert re.findall(r"^kafka-.*changed=(\d+)", again.stdout, re.MULTILINE) == ["0"] * 3


def test_the_roles_work_in_a_play_of_ones_own_that_does_not_become_root(inventory: Path, tmp_path):
    play = tmp_path / "own.yml"
    play.write_text(
        "- {hosts: brokers, gather_facts: false, roles: [landline.cluster.common, landline.cluster.broker]}\n"
    )
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", inventory, "--check", play], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert re.findall(r"^kafka-.*changed=(\d+)", done.stdout, re.MULTILINE) == ["0"] * 3


def test_a_cluster_with_addresses_of_ipv6_serves_clients(lab, inventory: Path, bootstrap):
    view = wait_until(
        lambda: (
            (found := cluster_view(service_address(lab.hosts[0]), BROKER_PORT))
            and len(found.ports) == 3
            and found
        ),
        60,
    )
    assert view.controller_id in view.ports
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3)], operation_timeout=30)["orders"].result(60)
    with NumberedLoad(bootstrap, "orders", 3) as load:
        wait_until(lambda: len(load.acked) > 100, 120)
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "orders", 3)
    for number, host in enumerate(lab.hosts, start=1):
        found = lab.run(host.name, "cat /etc/landline/*.properties").stdout
        assert f"broker.rack=rack-{number}\n" in found
        assert f"log.dirs=/data/1/broker-{number},/data/2/broker-{number}\n" in found


@contextmanager
def without_the_second_disk(lab, name: str, unit: str) -> Iterator[None]:
    lab.run(name, f"systemctl stop {unit} && umount /data/2 && mv /srv/disk2 /srv/away && touch /srv/disk2")
    try:
        lab.faults.reboot(name)
        yield
    finally:
        lab.run(
            name,
            "test ! -e /etc/fstab.was || mv /etc/fstab.was /etc/fstab; systemctl daemon-reload && "
            "rm /srv/disk2 && mv /srv/away /srv/disk2 && mount /data/2",
        )


def test_a_broker_does_not_start_without_its_disk_and_does_when_it_is_back(lab, inventory: Path, bootstrap):
    name, unit = lab.hosts[2].name, "landline-broker@3.service"
    with without_the_second_disk(lab, name, unit):
        # What systemd says of it is in the journal only if the journal's own service was up by then.
        up = "systemctl is-system-running"
        wait_until(lambda: lab.run(name, up, check=False).stdout.strip() in ("running", "degraded"), 120)
        assert lab.run(name, "systemctl is-failed data-2.mount", check=False).stdout == "failed\n"
        started = f"systemctl show --property=ExecMainStartTimestampMonotonic --value {unit}"
        assert lab.run(name, started).stdout == "0\n"
        words = re.sub(r"\s+", " ", deploy(inventory, check=False).stdout)
        missed = "mounts kafka-c nothing is mounted at /data/2 for /data/2/broker-3 (it is in /etc/fstab): mount it."
        assert missed in words
        # Not by hand either, not even if nothing else says that there should be a disk.
        lab.run(name, "sed -i.was /disk2/d /etc/fstab && systemctl daemon-reload")
        assert lab.run(name, f"systemctl start {unit}", check=False).returncode != 0
        assert (
            "AssertPathIsMountPoint=/data/2" in lab.run(name, f"systemctl status {unit}", check=False).stdout
        )
        assert lab.run(name, "ls /data/2").stdout == ""
    wait_until(lambda: lab.run(name, f"systemctl is-active {unit}", check=False).stdout == "active\n", 120)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def all_in_sync():
        partitions = admin.list_topics("orders", timeout=10).topics["orders"].partitions
        return len(partitions) == 3 and all(len(each.isrs) == 3 for each in partitions.values())

    wait_until(all_in_sync, 120)
    for directory in DISKS.values():
        assert "orders-" in lab.run(name, f"ls {directory}/broker-3").stdout


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


LATE = """
mkdir --parents /usr/local/late
printf 'import time\\nnow = time.time\\ntime.time = lambda: now() - 90\\n' >/usr/local/late/sitecustomize.py
printf '#!/bin/sh\\nPYTHONPATH=/usr/local/late exec /usr/bin/python3 "$@"\\n' >/usr/local/late/python
chmod +x /usr/local/late/python
"""
FAULTS = {
    "kafka-a": {"broker_kafka_port": 22, "zookeeper_id": 2},
    "kafka-b": {"ansible_python_interpreter": "/usr/local/late/python", "broker_frist_id": 7},
    "kafka-c": {
        "broker_first_id": 2,
        "broker_advertised_host": "kafka-c.invalid",
        "common_python": "/usr/bin/python4",
        "preflight_mounts": ["/data"],
        "preflight_broker_memory_mb": 100_000_000,
    },
    "kafka-d": {"ansible_host": "10.89.0.99", "broker_first_id": 4},
}
# All that a deployment would write.
WRITTEN = "find /etc /opt/landline /data/*/broker-*/meta.properties -newer /tmp/before -type f"


def test_many_faults_are_named_in_one_run_and_nothing_is_changed(lab, inventory: Path):
    hosts = yaml.safe_load(inventory.read_text())
    for name, variables in FAULTS.items():
        hosts["all"]["children"]["brokers"]["hosts"].setdefault(name, {}).update(variables)
    hosts["all"]["children"]["promethues"] = {"hosts": {"kafka-a": {}}}
    inventory.write_text(yaml.safe_dump(hosts))
    for host in lab.hosts:
        lab.run(host.name, "touch /tmp/before")
    lab.run(lab.hosts[1].name, LATE)
    before = runs(lab)
    done = make_with(inventory, "deploy", check=False)
    assert done.returncode != 0
    words = re.sub(r" +", " ", done.stdout)
    for line in (
        "groups all no playbook knows the group promethues: is it prometheus?",
        "variables kafka-b no role has a variable broker_frist_id: is it broker_first_id?",
        "reach kafka-d not reached, and left out: ",
        "ids kafka-b, kafka-c broker 2 is on kafka-b and kafka-c: ",
        "ports kafka-a port 22 for the listener PLAINTEXT of broker 1 is in use by sshd, process ",
        "mounts kafka-c /data is no mount point: ",
        "memory kafka-c ",
        "clock kafka-b its clock is ",
        "names kafka-a, kafka-b, kafka-c cannot resolve kafka-c.invalid, which is kafka-c",
        "versions kafka-c /usr/bin/python4 is no Python: ",
        "data kafka-c has broker-3.properties, whose brokers the inventory does not have here",
        "9 faults; nothing was changed on any host:",
    ):
        assert line in words
    assert runs(lab) == before
    assert [lab.run(host.name, WRITTEN).stdout for host in lab.hosts] == [""] * 3


def test_the_next_release_is_rolled_out_by_its_collection_and_taken_back_from_what_is_on_the_hosts_under_load(
    lab, inventory: Path, archives: Path, bootstrap, tmp_path: Path
):
    """Its collection is used where there is no checkout, by a playbook of two lines."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    elsewhere = Elsewhere(home, archives / f"landline-cluster-{NEXT}.tar.gz")
    arguments = (
        "--inventory",
        str(inventory),
        "site.yml",
        "--tags",
        "broker",
        "-e",
        f"landline_version={NEXT}",
    )
    assert all(f"releases/{VERSION}/" in said and f"releases/{VERSION}\n" in said for said in runs(lab))
    first = len(numbers_in(bootstrap, "orders", 3))
    with NumberedLoad(bootstrap, "orders", 3, first=first) as load:
        wait_until(lambda: len(load.acked) > 100, 120)
        elsewhere.run("ansible-playbook", *arguments)
        assert_all_run(lab, NEXT)
        on_one = ["--limit kafka-a", f"-e landline_version={NEXT}"]
        deploy(inventory, *on_one, f"-e '{json.dumps({'broker_properties': NEWER_FORMAT})}'")
        before = runs(lab)
        refused = deploy(inventory, f"-e landline_version={VERSION}", check=False)
        assert refused.returncode != 0
        assert "-checkpoint has version 1, known is 0" in re.sub(r"\s+", " ", refused.stdout)
        assert runs(lab) == before
        deploy(inventory, *on_one, f"-e '{json.dumps({'broker_properties': OLDER_FORMAT})}'")
        check = f"/opt/landline/releases/{VERSION}/venv/bin/landline check-config /etc/landline/broker-1.properties"
        wait_until(lambda: lab.run(lab.hosts[0].name, check, check=False).returncode == 0, 120)
        deploy(inventory, f"-e landline_version={VERSION}", "-e broker_archive_dir=/nonexistent")
        assert_all_run(lab, VERSION)
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "orders", 3)
