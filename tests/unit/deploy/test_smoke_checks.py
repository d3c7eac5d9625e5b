"""What `make smoke` takes for right, of clusters that are not as the lab's: by the checks themselves, on what hosts
with such settings say.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.smoke import conftest
from tests.smoke import test_zookeeper as checks
from tests.support.deploy_code import ROOT
from tools.inventory import Broker, Inventory

PLAIN = "PLAINTEXT://192.0.2.1:9092,BROKER://192.0.2.1:9091"
SECURED = "SASL_SSL://192.0.2.1:9094,BROKER_SSL://192.0.2.1:9095"


class Host:
    """A host with these open ports."""

    def __init__(self, *sockets):
        self._sockets = sockets

    @property
    def socket(self):
        return self

    def get_listening_sockets(self):
        return ["unix:///run/x", "udp://0.0.0.0:2181", *self._sockets]


class Nodes:
    """A broker's registration, as it is in ZooKeeper."""

    def __init__(self, endpoints, protocols, host, port):
        self._text = json.dumps(
            {
                "endpoints": endpoints.split(","),
                "listener_security_protocol_map": protocols,
                "host": host,
                "port": port,
                "version": 5,
                "rack": "r1",
            }
        )

    def get(self, path):
        assert path == "/brokers/ids/1"
        return self._text, None


@pytest.fixture
def site(monkeypatch):
    """A host h1 of the inventory with these variables, on which these sockets are open."""

    def described(*sockets, **variables):
        hosts = {"hostvars": {"h1": variables}}
        known = Inventory({"_meta": hosts, "brokers": {"hosts": ["h1"]}, "zookeeper": {"hosts": ["h1"]}})
        monkeypatch.setattr(conftest, "inventory", lambda: known)
        monkeypatch.setattr(conftest, "machine", lambda _: Host(*sockets))
        return known

    return described


@pytest.mark.parametrize(
    ("address", "sockets", "is_open"),
    [
        (None, ["tcp://:::2181", "tcp://0.0.0.0:2181"], True),
        (None, ["tcp://0.0.0.0:2181"], True),
        (None, ["tcp://127.0.0.1:2181", "tcp://:::2182"], False),
        ("::", ["tcp://:::2181"], True),
        ("192.0.2.1", ["tcp://192.0.2.1:2181"], True),
        ("192.0.2.1", ["tcp://::ffff:192.0.2.1:2181"], True),
        ("2001:db8::1", ["tcp://2001:db8::1:2181"], True),
        ("192.0.2.1", ["tcp://:::2181", "tcp://0.0.0.0:2181"], False),
    ],
)
def test_a_zookeeper_server_listens_where_its_host_says(site, address, sockets, is_open):
    site(*sockets, **({"zookeeper_client_address": address} if address else {}))
    if is_open:
        checks.test_the_client_port_is_open("h1")
    else:
        with pytest.raises(AssertionError):
            checks.test_the_client_port_is_open("h1")


def test_the_limits_of_a_zookeeper_server_are_its_hosts(site, monkeypatch):
    site(zookeeper_tasks_max=99)
    shown = {"TasksMax": "99", "OOMScoreAdjust": "-900"}
    monkeypatch.setattr(checks, "unit", lambda *_: shown)
    check = checks.test_the_unit_has_the_inventorys_limits
    check("h1", "TasksMax", "zookeeper_tasks_max", 4096)
    check("h1", "OOMScoreAdjust", "zookeeper_oom_score_adjust", -900)
    shown["TasksMax"] = "4096"
    with pytest.raises(AssertionError):
        check("h1", "TasksMax", "zookeeper_tasks_max", 4096)


@pytest.mark.parametrize(
    ("file", "nodes", "is_right"),
    [
        (PLAIN, Nodes(PLAIN, {"PLAINTEXT": "PLAINTEXT", "BROKER": "PLAINTEXT"}, "192.0.2.1", 9092), True),
        (SECURED, Nodes(SECURED, {"SASL_SSL": "SASL_SSL", "BROKER_SSL": "SSL"}, None, -1), True),
        (SECURED, Nodes(PLAIN, {"PLAINTEXT": "PLAINTEXT", "BROKER": "PLAINTEXT"}, "192.0.2.1", 9092), False),
        (SECURED, Nodes(SECURED, {"SASL_SSL": "SASL_SSL", "BROKER_SSL": "SSL"}, "192.0.2.1", 9094), False),
        (
            PLAIN.replace("0.2.1", "0.2.9"),
            Nodes(
                PLAIN.replace("0.2.1", "0.2.9"),
                {"PLAINTEXT": "PLAINTEXT", "BROKER": "PLAINTEXT"},
                "192.0.2.9",
                9092,
            ),
            False,
        ),
    ],
    ids=["plain", "secured", "other-listeners", "host-without-plaintext", "other-address"],
)
def test_a_broker_is_registered_with_the_listeners_and_the_rack_of_its_file(
    site, monkeypatch, file, nodes, is_right
):
    site()
    written = {"advertised.listeners": file, "broker.rack": "r1"}
    monkeypatch.setattr(checks, "properties", lambda _: written)
    broker = Broker("h1", 1, "192.0.2.1", 9092, 8092, 9091)
    if is_right:
        checks.test_a_brokers_registration_says_where_it_is(nodes, broker)
        written["broker.rack"] = "r2"
        with pytest.raises(AssertionError):
            checks.test_a_brokers_registration_says_where_it_is(nodes, broker)
    else:
        with pytest.raises(AssertionError):
            checks.test_a_brokers_registration_says_where_it_is(nodes, broker)


def test_without_servers_in_the_inventory_the_ensemble_is_left_alone_with_the_reason(tmp_path):
    host = {"ansible_host": "192.0.2.1", "broker_zookeeper_connect": "zk.example.org:2181"}
    (tmp_path / "hosts.json").write_text(json.dumps({"brokers": {"hosts": {"h1": host}}}))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/smoke/test_zookeeper.py", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "LANDLINE_SMOKE": "1", "ANSIBLE_INVENTORY": str(tmp_path / "hosts.json")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.fullmatch(r"\d+ skipped in .*", done.stdout.splitlines()[-1]), done.stdout
    assert "the inventory has no group zookeeper" in done.stdout
