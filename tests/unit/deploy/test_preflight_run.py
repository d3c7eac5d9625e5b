"""What the check before a deploy tells of a host with several faults, from the inventory to the table.

It runs on this machine, which is the host.
"""

import json
import re
import sys

import pytest

from tests.support.plays import played


@pytest.fixture
def faults(tmp_path):
    """Runs a preflight of one host with these variables; returns its faults, by check."""

    def run(**variables):
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
            "ansible_host": "127.0.0.1",
            "common_python": sys.executable,
            "common_config_dir": str(tmp_path / "etc"),
            "broker_unit_dir": str(tmp_path),
            "zookeeper_unit": "landline-test-zookeeper.service",
            "zookeeper_config_file": str(tmp_path / "landline.cfg"),
            "broker_archive_dir": str(tmp_path),
            "landline_version": "1.0",
            **variables,
        }
        inventory = {"brokers": {"hosts": {"h1": {}}}, "zookeeper": {"hosts": {"h1": {}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        done = played(
            tmp_path,
            "--check",
            f"--inventory={tmp_path}/hosts.json",
            f"--extra-vars={json.dumps(host)}",
            "playbooks/preflight.yml",
        )
        assert done.returncode != 0
        told = re.search(
            r"^\[ERROR\]: .*?nothing was changed on any host:$(.*?)^Mend them",
            done.stdout,
            re.MULTILINE | re.DOTALL,
        )
        assert told is not None
        return re.findall(r"^(\w+) +h1 +(.*)$", told[1], re.MULTILINE)

    return run


def test_what_the_host_has_otherwise_than_the_inventory_says_is_told_before_anything_changes(
    faults, tmp_path
):
    (tmp_path / "landline-1.0.json").write_text(
        json.dumps({"archives": {"cp311-vax": {"file": "landline.tar"}}})
    )
    disk = tmp_path / "disk"
    (tmp_path / "landline-broker@1.service").write_text(f"[Unit]\nAssertPathIsMountPoint={disk}\n")
    tree = disk / "zookeeper" / "version-2"
    tree.mkdir(parents=True)
    (tree / "snapshot.1f").write_bytes(b"")
    found = faults(
        broker_data_dirs=[str(disk)],
        zookeeper_data_dir=f"{disk}/zookeeper",
        broker_http_host="192.0.2.1",
        broker_properties={"broker.id": 7},
    )
    (strange,) = [what for check, what in found if check == "data"]
    assert strange.startswith(f"{disk}/zookeeper has a tree of ZooKeeper's (zxid 0x1f)")
    settings = [what for check, what in found if check == "settings"]
    assert [
        what for what in settings if what.startswith("broker_http_host=192.0.2.1 is no address of this host")
    ]
    assert "broker_properties sets broker.id=7: take it away, and set broker_first_id" in settings
    assert [what for what in settings if f"{tmp_path} has no archive of it for Python 3." in what]
    missed = [what for check, what in found if check == "mounts"]
    assert [what.partition(" (")[0] for what in missed] == [
        f"nothing is mounted at {disk} for {disk}/broker-1"
    ]
