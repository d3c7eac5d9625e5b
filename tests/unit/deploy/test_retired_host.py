"""What `make decommission` removes from a host, in a dry run on this machine: what the journal shipper needs stays."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.plays import played

PLAY = """
- hosts: h1
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: landline.cluster.broker, tasks_from: retire_remove}
"""
BROKERS_OWN = ("broker-1.properties", "broker-1.env", "broker.pem", "http-tokens")
CLIENTS = ("client.properties", "ca.pem")
SHIPPERS = ("journal-shipper.properties",)


@pytest.fixture
def host(tmp_path):
    for name in (*BROKERS_OWN, *CLIENTS, *SHIPPERS):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text("")
    for name in ("units", "opt/releases", "data/broker-1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "units/landline-broker@1.service").write_text("")
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "broker_first_id": 1,
        "broker_install_dir": str(tmp_path / "opt"),
        "broker_config_dir": str(tmp_path / "etc"),
        "broker_data_dir": str(tmp_path / "data"),
    }
    inventory = {group: {"hosts": {"h1": variables}} for group in ("brokers", "zookeeper")}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text(PLAY)
    return tmp_path


def removed(host):
    """The files of the configuration that the dry run would remove."""
    done = played(
        host,
        "--check",
        "-i",
        host / "hosts.json",
        host / "play.yml",
        "-e",
        f"broker_unit_dir={host / 'units'}",
    )
    assert done.returncode == 0
    items = re.findall(r"^changed: \[h1\] => \(item=(.*)\)", done.stdout, re.MULTILINE)
    assert str(host / "units/landline-broker@1.service") in items
    assert str(host / "data/broker-1") in items
    return {Path(each).name for each in items if Path(each).parent == host / "etc"}


def test_all_of_the_brokers_and_the_settings_for_clients_go(host):
    assert removed(host) == {*BROKERS_OWN, *CLIENTS}


def test_a_journal_shipper_keeps_what_it_starts_with(host):
    (host / "units/landline-journal-shipper.service").write_text("")
    assert removed(host) == set(BROKERS_OWN)
