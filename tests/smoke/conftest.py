"""What the smoke tests share: the deployed cluster as the inventory describes it, and its hosts by ssh.

They look at a cluster that runs, so they are collected only where one is meant: `make smoke`
sets LANDLINE_SMOKE.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
from pathlib import Path

import pytest
import testinfra

from sparkctl.ssh import resolve
from tools.client_file import ClientFile, fetch
from tools.inventory import Inventory

HTTP_S = 5.0
SHARED = Path.home() / ".ansible/cp"

if not os.environ.get("LANDLINE_SMOKE"):
    collect_ignore_glob = ["test_*.py"]


@functools.cache
def inventory():
    try:
        return Inventory.read()
    except SystemExit as error:
        # Which pytest would take for an error of its own.
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


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


@functools.cache
def client_file():
    """The settings for clients, as root reads them on the first host."""
    return ClientFile.parse(fetch(inventory()))


def client(**settings):
    """librdkafka's settings of a client of the cluster, as secured as the cluster is."""
    return {**client_file().librdkafka(), **settings}


def clients_address(broker):
    """Where clients reach a broker: at its listener for them, by its /status."""
    listeners = dict(each.partition("://")[::2] for each in status(broker)["listeners"])
    return listeners[client_file().protocol]


@functools.cache
def machine(name):
    """testinfra's view of a host as root, over one shared ssh connection."""
    arguments, address = inventory().ssh_arguments(name), inventory().address(name)
    # What the inventory has of these comes first, and counts.
    SHARED.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60s", "-o", f"ControlPath={SHARED}/smoke-%C"]
    sudo = resolve(arguments, address).user != "root"
    found = testinfra.get_host(
        f"ssh://[{address}]" if ":" in address else f"ssh://{address}",
        ssh_extra_args=shlex.join([*arguments, *shared]),
        sudo=sudo,
    )
    if sudo and (tried := found.run("true")).rc:
        # Said once; every test of the host would fail.
        words = f"{name}: make smoke needs sudo without a password (docs/hosts.md): {tried.stderr.strip()}"
        pytest.exit(words, returncode=pytest.ExitCode.USAGE_ERROR)
    return found


def setting(name, *variables, default):
    """The first of these variables that a host has; else the role's default."""
    known = inventory().variables(name)
    return next((known[each] for each in variables if each in known), default)


def user_and_group(name):
    """Who runs the brokers of a host."""
    return (
        setting(name, "broker_system_user", "common_user", default="landline"),
        setting(name, "broker_system_group", "common_group", default="landline"),
    )


def config_dir(name):
    """Where a host has its properties files."""
    return setting(name, "broker_config_dir", "common_config_dir", default="/etc/landline")


def install_dir(name):
    """Where a host has its releases."""
    return setting(name, "broker_install_dir", "common_install_dir", default="/opt/landline")


@functools.cache
def properties(broker):
    """The properties in the broker's file."""
    text = (
        machine(broker.host)
        .file(f"{config_dir(broker.host)}/broker-{broker.broker_id}.properties")
        .content_string
    )
    return dict(line.partition("=")[::2] for line in text.splitlines() if not line.startswith("#"))


@functools.cache
def unit(name, unit_name):
    """What systemd says of a unit, by property."""
    shown = machine(name).check_output("systemctl show %s", unit_name)
    return dict(line.partition("=")[::2] for line in shown.splitlines())


def listening_addresses(name, port):
    """The addresses of a host at which a TCP port is open: 0.0.0.0 and :: stand for all."""
    sockets = machine(name).socket.get_listening_sockets()
    places = [each.removeprefix("tcp://").rpartition(":") for each in sockets if each.startswith("tcp://")]
    # A JVM has IPv4's addresses as those of IPv6.
    return {address.removeprefix("::ffff:") for address, _, at in places if int(at) == port}


def process_status(name, pid):
    """/proc/PID/status of a process on a host, by field."""
    lines = machine(name).file(f"/proc/{pid}/status").content_string.splitlines()
    return {field: value.strip() for field, _, value in (line.partition(":") for line in lines)}


def status(broker):
    """The broker's /status."""
    code, body = broker.get("/status", HTTP_S)
    assert code == 200, body
    return json.loads(body)
