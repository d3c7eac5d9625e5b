"""Hosts as the check before a deploy has looked at them, and what it finds."""

import copy

from tests.support.deploy_code import load

preflight = load("plugins/filter/preflight.py")

NOW = 1_000_000.0
CLUSTER = "qWvLGU7gTUuTS2oGZk0gkA"
GROUPS = {"all": ["a", "b"], "ungrouped": [], "brokers": ["a", "b"], "zookeeper": ["a"]}
KNOWN = ["broker_first_id", "broker_zookeeper_connect", "zookeeper_id", "landline_version"]
SETTINGS = {"allow": [], "mounts": [], "clock_s": 5, "pythons": ["3.11"], "systems": {"debian": ["12"]}}


def place(**more):
    """A directory, as a host tells of it."""
    found = {
        "is_directory": True,
        "mount": "/",
        "is_mount": False,
        "device": 1,
        "free_mb": 9000,
        "free_files": -1,
    }
    return {**found, "read_only": False, **more}


def host(name, number):
    """A sound host with a broker and a ZooKeeper server."""
    data = f"/var/lib/landline/broker-{number}"
    broker = {
        "role": "broker",
        "id_of": "broker",
        "id_by": "broker_first_id",
        "ids": [number],
        "brokers": [{"id": number, "data_dirs": [data]}],
        "directories": [{"path": data, "for": "the data", "mb": 1024, "set_by": "broker_data_dir"}],
        "ports": [{"port": 9092, "for": "the listener", "set_by": "broker_kafka_port"}],
        "address": f"{name}.example",
        "address_by": "broker_advertised_host",
        "port": 9092,
        "memory_mb": 256,
        "python": "/usr/bin/python3",
    }
    zookeeper = {
        "role": "zookeeper",
        "id_of": "ZooKeeper server",
        "id_by": "zookeeper_id",
        "ids": [number],
        "ports": [{"port": 2181, "for": "ZooKeeper's clients", "set_by": "zookeeper_client_port"}],
        "memory_mb": 384,
        "java": 8,
        "java_with": "/usr/share/java/zookeeper.jar",
    }
    seen = {
        "time": NOW - 1,
        "asked_at": NOW - 2,
        "synchronised": True,
        "system": {"id": "debian", "version": "12", "machine": "x86_64"},
        "versions": {"systemd": "252", "python": "3.11", "java": "17", "ansible": "3.11"},
        "memory_mb": 2000,
        "directories": {data: place()},
        "taken": [],
        "addresses": [f"192.0.2.{number}", "127.0.0.1"],
        "names": {"a.example": ["192.0.2.1"], "b.example": ["192.0.2.2"]},
        "data": {data: {"broker_id": str(number), "cluster_id": CLUSTER}},
        "properties_files": [f"broker-{number}.properties"],
        "files": ["/usr/share/java/zookeeper.jar"],
        "cluster_id": CLUSTER,
    }
    told = {"name": name, "groups": ["brokers"], "variables": ["broker_first_id", "my_own"], "unsettled": []}
    return {**told, "settings": copy.deepcopy(SETTINGS), "needs": [broker, zookeeper], "seen": seen}


def found(hosts, groups=GROUPS):
    """The findings of a check: which, of whom, what, and whether it is only a warning."""
    return [
        (each["check"], each["hosts"], each["what"], each["is_warning"])
        for each in preflight.preflight_findings(hosts, groups, KNOWN, NOW)
    ]
