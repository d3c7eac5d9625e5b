"""Data and trees of others, which a deployment finds before it changes anything."""

import pytest

from tests.support.preflight_hosts import CLUSTER, found, host


@pytest.fixture
def hosts():
    return [host("a", 1), host("b", 2)]


def test_data_of_another_broker_or_cluster_is_a_fault(hosts):
    mine, its = "/var/lib/landline/broker-1", "/var/lib/landline/broker-2"
    hosts[0]["seen"]["data"][mine] = {"broker_id": "7", "cluster_id": CLUSTER}
    hosts[1]["seen"]["data"][its] = {"broker_id": "2", "cluster_id": "another"}
    assert found(hosts) == [
        ("data", ["a"], f"{mine} has data of broker 7, and broker 1 is to use it", False),
        ("data", ["b"], f"{its} has data of the cluster another; this one is {CLUSTER}", False),
    ]


def test_without_an_answer_of_zookeeper_the_cluster_is_the_one_of_most_data(hosts):
    hosts.append(host("c", 3))
    for each in hosts:
        each["seen"] |= {"cluster_id": None, "names": {}}
    hosts[2]["seen"]["data"]["/var/lib/landline/broker-3"]["cluster_id"] = "another"
    assert [each[:2] for each in found(hosts)] == [("data", ["c"])]


def test_data_without_a_tree_in_zookeeper_asks_for_a_restore(hosts):
    for each in hosts:
        each["seen"]["cluster_id"] = ""
    assert all(what.endswith("and ZooKeeper has no cluster: make restore") for _, _, what, _ in found(hosts))
    assert len(found(hosts)) == 2


SERVER = {
    "unit": "zookeeper.service",
    "config_file": "/etc/zookeeper/landline.cfg",
    "data_dir": "/var/lib/zookeeper",
}
OURS = {"runs": True, "is_ours": True, "members": [1, 2, 3], "zxid": 0}
STRANGE = {"runs": False, "is_ours": False, "members": [], "zxid": 0}


def test_a_zookeeper_that_the_role_did_not_set_up_is_a_fault(hosts):
    for each in hosts:
        each["needs"][1]["server"] = SERVER
        each["seen"]["zookeeper"] = OURS
    assert found(hosts) == []
    hosts[1]["seen"]["zookeeper"] = STRANGE
    assert found(hosts) == []  # it is new
    # The others do not help: it runs with another configuration than theirs.
    hosts[1]["seen"]["zookeeper"] = {**STRANGE, "runs": True}
    ((check, names, what, is_warning),) = found(hosts)
    assert (check, names, is_warning) == ("data", ["b"], False)
    assert what.startswith(
        "zookeeper.service runs, and was not set up by this role: there is no /etc/zookeeper/"
    )
    assert "set broker_zookeeper_connect" in what


def test_a_tree_of_zookeepers_that_nobody_counts_on_is_a_fault(hosts):
    for each in hosts:
        each["needs"][1]["server"] = SERVER
    hosts[0]["seen"]["zookeeper"] = OURS
    hosts[1]["seen"]["zookeeper"] = {**STRANGE, "zxid": 0x1A}
    assert found(hosts) == []  # its /etc was lost
    hosts[0]["seen"]["zookeeper"] = {**OURS, "members": []}  # the only one of its ensemble, which is to grow
    ((check, names, what, is_warning),) = found(hosts)
    assert (check, names, is_warning) == ("data", ["b"], False)
    assert what.startswith(
        "/var/lib/zookeeper has a tree of ZooKeeper's (zxid 0x1a), and there is no /etc/zookeeper/"
    )
    assert "preflight_allow: [data]" in what


def test_a_broker_that_the_inventory_does_not_have_is_a_fault(hosts):
    hosts[0]["seen"]["properties_files"] += ["broker-11.properties"]
    ((check, names, what, _),) = found(hosts)
    assert (check, names) == ("data", ["a"])
    assert what.startswith("has broker-11.properties, whose brokers the inventory does not have here")
