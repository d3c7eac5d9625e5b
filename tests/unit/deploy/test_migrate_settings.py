"""What playbooks/migrate.yml takes over from a server.properties, and what it refuses by its name."""

import pytest

from tests.support.deploy_code import load

migrate = load("plugins/filter/migrate.py")
reader = load("plugins/module_utils/kafka_properties.py")
info = load("plugins/modules/kafka_server_info.py")

AT = "/opt/kafka/config/server.properties"
ZOOKEEPER = "192.0.2.1:2181/kafka"


def kafka(properties=None, metas=None, **more):
    """A broker as kafka_server_info sees it; a property that is None is not in its file."""
    found = {"broker.id": "7", "zookeeper.connect": ZOOKEEPER, "log.dirs": "/data/a", **(properties or {})}
    kept = {key: value for key, value in found.items() if value is not None}
    dirs = info.log_dirs_in(kept)
    meta = {"version": "0", "broker.id": "7", "cluster.id": "c1"}
    told = dict.fromkeys(dirs, meta) if metas is None else metas
    state = {"active": True, "enabled": True, "serving": False, "switched": False, "wrong": "", "config": AT}
    return {**state, "properties": kept, "log_dirs": dirs, "metas": told, **more}


def variables(properties=None, registered=None, **more):
    return migrate.migrated_variables(kafka(properties, **more), registered)


def test_a_properties_file_is_read_as_java_reads_it():
    text = "# a = b\n! c\n\n a=1\nb : two words \n c\\:d 3\ne = f\\\n   g\\\\\nh\na= 2\ni=\\u0041\\tB\n"
    assert reader.parse_properties(text) == {
        "a": "2",
        "b": "two words ",
        "c:d": "3",
        "e": "fg\\",
        "h": "",
        "i": "A\tB",
    }


def test_every_key_is_carried_and_what_the_role_would_add_keeps_kafkas_default():
    found = variables({"num.io.threads": "4", "min.insync.replicas": "2", "broker.rack": "r1"})
    assert (found["broker_first_id"], found["broker_zookeeper_connect"]) == (7, ZOOKEEPER)
    properties = found["broker_properties"]
    assert properties["num.io.threads"] == "4"
    assert (properties["min.insync.replicas"], properties["broker.rack"]) == ("2", "r1")
    assert properties["default.replication.factor"] is None
    assert properties["landline.eligible.leader.replicas.enable"] is None
    assert "broker.id" not in properties


def test_the_keys_that_the_role_adds_are_all_known():
    """One that is new in roles/broker/vars must be here, or migrated brokers get it unasked."""
    import yaml

    from tests.support.deploy_code import ROOT

    role = yaml.safe_load((ROOT / "roles/broker/vars/main.yml").read_text())["broker_base_properties"]
    assert set(role) <= {*migrate.ROLES_OWN, "zookeeper.connect"}


def test_clients_are_told_to_come_where_they_were_told_before():
    assert variables({"listeners": "PLAINTEXT://:9092"}, {"7": {"endpoints": ["PLAINTEXT://k7:9092"]}})[
        "broker_properties"
    ]["advertised.listeners"] == ("PLAINTEXT://k7:9092")
    by_file = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://k7.example:9092"}
    assert (
        variables(by_file, {})["broker_properties"]["advertised.listeners"] == "PLAINTEXT://k7.example:9092"
    )


def test_the_clients_of_the_hosts_get_the_port_of_the_plaintext_listener():
    ports = [
        variables({"listeners": each})["broker_kafka_port"]
        for each in ("SSL://:9093,PLAINTEXT://:19092", "PLAINTEXT://h:9192", "SSL://:9093")
    ]
    assert ports == [19092, 9192, 9092]


def test_an_id_that_only_the_data_says_is_taken_from_there():
    assert variables({"broker.id": None})["broker_first_id"] == 7


def test_a_broker_of_zookeeper_mode_with_its_data_in_place_has_no_doubts():
    assert migrate.migration_doubts(kafka({"inter.broker.protocol.version": "3.9-IV0"})) == []


@pytest.mark.parametrize(
    ("properties", "metas", "named"),
    [
        ({"process.roles": "broker"}, None, "process.roles"),
        ({"zookeeper.connect": None}, None, "zookeeper.connect is missing"),
        ({"inter.broker.protocol.version": "3.4"}, None, "inter.broker.protocol.version=3.4"),
        ({"authorizer.class.name": "com.example.Mine"}, None, "authorizer.class.name=com.example.Mine"),
        ({"log.dirs": None}, None, "log.dirs: /tmp/kafka-logs is below /tmp"),
        ({"log.dirs": "data"}, None, "log.dirs: data is not absolute"),
        ({}, {}, "/data/a has no meta.properties"),
        ({}, {"/data/a": {"version": "1", "node.id": "7"}}, "version=1, which is KRaft's"),
        ({}, {"/data/a": {"version": "0", "broker.id": "8"}}, "broker.id=8"),
    ],
)
def test_what_does_not_fit_is_named(properties, metas, named):
    assert any(named in doubt for doubt in migrate.migration_doubts(kafka(properties, metas)))


def test_hosts_of_several_clusters_and_an_id_that_two_have_are_refused():
    other = {"/data/a": {"version": "0", "broker.id": "7", "cluster.id": "c2"}}
    hosts = [
        {"inventory_hostname": name, "broker_kafka_seen": found}
        for name, found in (("a", kafka()), ("b", kafka(metas=other)))
    ]
    assert migrate.migration_clashes(hosts[:1]) == []
    assert migrate.migration_clashes(hosts) == [
        "broker 7 is on a and b",
        "the brokers are of several clusters: c1: a; c2: b",
    ]


def test_a_host_that_runs_what_it_is_to_run_does_nothing_and_the_controller_comes_last():
    looked = {"registered": {"7": {}, "8": {}}, "controller": 7}
    was, now = kafka(), kafka(active=False, enabled=False, serving=True, switched=True)

    def does(found, to):
        return migrate.migrate_does({"broker_kafka_seen": found, "broker_quorum_looked": looked}, to)

    assert (does(was, "kafka"), does(now, "landline")) == ("nothing", "nothing")
    assert (does(was, "landline"), does(now, "kafka")) == ("controller", "controller")
    interrupted = kafka(active=False, enabled=False, serving=True)
    assert does(interrupted, "landline") == "controller"
    assert does(kafka({"broker.id": "8"}), "landline") == "others"
    assert does(kafka({"broker.id": "9"}, active=False), "landline") == "broken"


def test_the_file_is_the_last_of_the_units_command():
    shown = (
        "{ path=/opt/kafka/bin/start.sh ; argv[]=/opt/kafka/bin/start.sh -daemon /etc/k/server.properties ; }"
    )
    assert info.config_in(shown) == "/etc/k/server.properties"
    assert info.config_in("{ path=/bin/true ; argv[]=/bin/true }") == ""
