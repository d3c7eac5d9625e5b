"""What the smoke tests share: the deployed cluster as the inventory describes it, and its hosts by ssh.

They look at a cluster that runs, so they are collected only where one is meant: `make smoke`
sets LANDLINE_SMOKE.
"""

from __future__ import annotations

import functools
import json
import os
import shlex

import pytest
import testinfra

from tools.http_access import get
from tools.inventory import Inventory

HTTP_S = 5.0

if not os.environ.get("LANDLINE_SMOKE"):
    collect_ignore_glob = ["test_*.py"]


@functools.cache
def inventory():
    return Inventory.read()


def pytest_generate_tests(metafunc):
    """One test per host, per broker, per ZooKeeper server: as the test asks for them."""
    if "host_name" in metafunc.fixturenames:
        metafunc.parametrize("host_name", inventory().hosts("brokers"), scope="session")
    if "zookeeper_name" in metafunc.fixturenames:
        metafunc.parametrize("zookeeper_name", inventory().hosts("zookeeper"), scope="session")
    if "broker" in metafunc.fixturenames:
        brokers = inventory().brokers()
        metafunc.parametrize(
            "broker", brokers, ids=[f"{b.host}-{b.broker_id}" for b in brokers], scope="session"
        )


@pytest.fixture(scope="session")
def cluster():
    """The inventory; its brokers are `cluster.brokers()`."""
    return inventory()


@pytest.fixture(scope="session")
def bootstrap():
    return ",".join(broker.bootstrap for broker in inventory().brokers())


@functools.cache
def machine(name):
    """testinfra's view of a host, over one shared ssh connection."""
    user = inventory().variables(name).get("ansible_user", "root")
    arguments = shlex.join(inventory().ssh_arguments(name))
    return testinfra.get_host(f"ssh://{user}@{inventory().address(name)}", ssh_extra_args=arguments)


@functools.cache
def unit(name, unit_name):
    """What systemd says of a unit, by property."""
    shown = machine(name).check_output("systemctl show %s", unit_name)
    return dict(line.partition("=")[::2] for line in shown.splitlines())


def process_status(name, pid):
    """/proc/PID/status of a process on a host, by field."""
    lines = machine(name).file(f"/proc/{pid}/status").content_string.splitlines()
    return {field: value.strip() for field, _, value in (line.partition(":") for line in lines)}


def status(broker):
    """The broker's /status."""
    code, body = get(f"{broker.url}/status", HTTP_S)
    assert code == 200, body
    return json.loads(body)
