"""From a host's settings to its brokers: the filters of the role `broker`."""

import pytest
import yaml
from jinja2.sandbox import SandboxedEnvironment

from broker.config.keys import BROKER_KEYS
from tests.support.deploy_code import ROOT, load

filters = load("plugins/filter/landline.py")
zookeeper = load("plugins/filter/zookeeper_inventory.py")
security = load("plugins/filter/broker_security.py")
spark = load("plugins/filter/spark.py")

SETTINGS = {
    "first_id": "4",
    "count": "3",
    "http_port": 8092,
    "port_step": 10,
    "ports": {"PLAINTEXT": 9092, "BROKER": 0, "SSL": 9093, "SASL_SSL": 9094, "BROKER_SSL": 9095},
    "listeners": ["PLAINTEXT", "BROKER"],
    "between": "PLAINTEXT",
    "super_users": ["User:CN=landline-broker"],
    "certificate_names": ["h1", "192.0.2.1"],
    "listen_host": "0.0.0.0",
    "advertised_host": "192.0.2.1",
    "http_host": "",
    "http_tls": False,
    "has_http_tokens": False,
    "http_address": "192.0.2.1",
    "config_dir": "/etc/landline",
    "data_dirs": ["/var/lib/landline"],
    "release": "0.1.0-abc",
    "unit": "[Unit]",
    "properties": {"broker.rack": "h1"},
    "properties_by_id": {},
}


BOTH = {"ports": {**SETTINGS["ports"], "BROKER": "9091"}, "between": "BROKER"}
SECURE = {"listeners": ["SASL_SSL", "BROKER_SSL"], "between": "BROKER_SSL"}


def fingerprints(**changed):
    return [broker["fingerprint"] for broker in filters.broker_instances({**SETTINGS, **changed})]


def test_each_further_broker_of_a_host_has_the_next_id_and_ports():
    brokers = filters.broker_instances(SETTINGS)
    assert [(b["id"], b["port"], b["http_port"]) for b in brokers] == [
        (4, 9092, 8092),
        (5, 9102, 8102),
        (6, 9112, 8112),
    ]
    assert brokers[1]["data_dirs"] == ["/var/lib/landline/broker-5"]
    assert brokers[1]["unit"] == "landline-broker@5.service"
    assert brokers[1]["properties"]["advertised.listeners"] == "PLAINTEXT://192.0.2.1:9102"


def test_properties_are_sorted_so_that_a_diff_is_stable():
    [properties] = [b["properties"] for b in filters.broker_instances({**SETTINGS, "count": 1})]
    assert list(properties) == sorted(properties)


def test_the_users_properties_win():
    [broker] = filters.broker_instances(
        {**SETTINGS, "count": 1, "properties": {"listeners": "PLAINTEXT://:7000"}}
    )
    assert broker["properties"]["listeners"] == "PLAINTEXT://:7000"


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (["a", "b"], "a,b"), (7, "7"), ("", "")]
)
def test_values_are_written_as_kafka_reads_them(value, text):
    [broker] = filters.broker_instances({**SETTINGS, "count": 1, "properties": {"key": value}})
    assert broker["properties"]["key"] == text


def test_the_http_host_is_written_only_when_it_is_set():
    assert "landline.http.host" not in filters.broker_instances(SETTINGS)[0]["properties"]
    with_host = filters.broker_instances({**SETTINGS, "http_host": "192.0.2.1"})[0]["properties"]
    assert with_host["landline.http.host"] == "192.0.2.1"


@pytest.mark.parametrize(
    ("advertised", "listens_on"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("kafka-a.example", ""),
        ("0.0.0.0", ""),
        ("::", ""),
        ("", ""),
    ],
)
def test_http_listens_where_the_host_is_advertised_if_that_is_an_address(advertised, listens_on):
    assert filters.address_or_nothing(advertised) == listens_on


def test_the_fingerprint_stays_when_nothing_changed():
    assert fingerprints() == fingerprints()
    assert len(set(fingerprints())) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"release": "0.1.1-def"},
        {"unit": "[Unit]\nDescription=other"},
        {"properties": {"broker.rack": "h2"}},
        {"ports": {"PLAINTEXT": 9192}},
    ],
)
def test_the_fingerprint_follows_whatever_needs_a_restart(changed):
    assert not set(fingerprints()) & set(fingerprints(**changed))


@pytest.mark.parametrize(
    ("properties", "restarts"),
    [
        ({"log.retention.hours": 24}, False),
        ({"log.retention.hours": 24, "listener.name.plaintext.max.connections": 7}, False),
        ({"log.retention.hours": 24, "num.partitions": 2}, True),
    ],
)
def test_only_settings_that_a_running_broker_does_not_take_up_restart_it(properties, restarts):
    changed = fingerprints(properties={"broker.rack": "h1", **properties})
    assert (changed != fingerprints()) is restarts


def test_what_a_broker_has_by_a_variable_is_refused_as_a_property():
    """With broker.id in broker_properties every broker would have that id, and its unit and files another."""
    by_hand = {"broker.id": 7, "landline.http.port": 9000, "landline.http.host": "::1", "listeners": "X://:1"}
    assert filters.broker_keys_by_variable(
        by_hand, {11: {"landline.http.port": -1, "log.dirs": ["/data"]}}
    ) == [
        "broker_properties sets broker.id=7: take it away, and set broker_first_id",
        "broker_properties sets landline.http.host=::1: take it away, and set broker_http_host",
        "broker_properties sets landline.http.port=9000: take it away, and set broker_http_port",
        "broker_properties_by_id of 11 sets landline.http.port=-1: take it away, and set broker_http_port",
    ]
    assert filters.broker_keys_by_variable({"broker.id": None, "broker.rack": "a"}, {}) == []


def test_two_brokers_of_a_host_do_not_get_one_directory():
    def shared(**settings):
        return filters.broker_shared_dirs(filters.broker_instances({**SETTINGS, "count": 2, **settings}))

    (words,) = shared(properties={"log.dirs": "/data/1, /data/1"})
    assert words.startswith(
        "log.dirs has /data/1 for the brokers 4 and 5 of this host: give each its own, by "
    )
    (words,) = shared(properties_by_id={"4": {"log.dirs": ["/a", "/b"]}, "5": {"log.dirs": ["/c", "/b/"]}})
    assert words.startswith("log.dirs has /b for the brokers 4 and 5 of this host")
    (words,) = shared(properties_by_id={"4": {"log.dirs": "/var"}, "5": {"log.dirs": "/var/broker-5/"}})
    assert words.startswith(
        "log.dirs has /var for broker 4 of this host, and /var/broker-5 in it for broker 5: "
    )
    assert shared() == []
    assert shared(properties_by_id={"4": {"log.dirs": ["/a"]}}) == []


def test_properties_with_a_password_are_known_and_what_no_module_needs_is_left_out():
    for key in (key.name for key in BROKER_KEYS.values() if key.sensitive):
        assert filters.broker_instances({**SETTINGS, "properties": {key: "x"}})[0]["has_secrets"], key
    brokers = filters.broker_instances({**SETTINGS, **SECURE})
    assert not any(broker["has_secrets"] for broker in brokers)
    assert "properties" not in filters.broker_without_properties(brokers)[0]


def test_a_certificate_for_other_names_restarts_brokers_that_use_one():
    other = {"certificate_names": ["h1", "192.0.2.9"]}
    assert fingerprints(**other) == fingerprints()
    assert not set(fingerprints(**SECURE)) & set(fingerprints(**SECURE, **other))


def test_one_more_broker_on_a_host_restarts_no_other():
    assert fingerprints(count=4)[:3] == fingerprints()


def test_the_clusters_addresses_follow_each_hosts_own_settings():
    hosts = [
        {"inventory_hostname": "a", "ansible_host": "192.0.2.1", "brokers_per_host": "2"},
        {"inventory_hostname": "b", "broker_http_port": 9500},
        {"inventory_hostname": "c", "ansible_host": "192.0.2.3", "broker_advertised_host": "kafka-c"},
    ]
    assert filters.broker_urls(hosts, 8092, 10) == [
        "http://192.0.2.1:8092",
        "http://192.0.2.1:8102",
        "http://b:9500",
        "http://kafka-c:8092",
    ]


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("192.0.2.1", "192.0.2.1:9092"),
        ("kafka-a.example", "kafka-a.example:9092"),
        ("2001:db8::1", "[2001:db8::1]:9092"),
        ("::", "[::]:9092"),
        ("[2001:db8::1]", "[2001:db8::1]:9092"),
        ("", ":9092"),
    ],
)
def test_of_a_host_and_a_port_only_an_ipv6_address_is_put_in_brackets(host, written):
    write = filters.FilterModule().filters()["host_port"]
    assert [write(host, port) for port in (9092, "9092")] == [written, written]


def test_an_ipv6_address_stands_in_brackets_in_urls_and_listeners():
    """One that is in brackets already, as it had to be written before, stays so."""
    for address in ("2001:db8::1", "[2001:db8::1]"):
        settings = {"listen_host": "::", "advertised_host": address, "http_address": address}
        changed = {**SETTINGS, **settings, **BOTH}
        broker = filters.broker_instances(changed)[0]
        properties = broker["properties"]
        assert broker["url"] == "http://[2001:db8::1]:8092"
        assert properties["listeners"] == "PLAINTEXT://[::]:9092,BROKER://[::]:9091"
        advertised = "PLAINTEXT://[2001:db8::1]:9092,BROKER://[2001:db8::1]:9091"
        assert properties["advertised.listeners"] == advertised
        host = {"inventory_hostname": "a", "ansible_host": address}
        assert filters.broker_urls([host], 8092, 10) == ["http://[2001:db8::1]:8092"]
        assert filters.zookeeper_connect([host], 2181, "/kafka") == "[2001:db8::1]:2181/kafka"
        lines = zookeeper.zookeeper_lines([host], 2888, 3888)
        assert lines == {"1": "[2001:db8::1]:2888:3888"}


def test_services_have_an_address_apart_from_that_of_ssh_where_the_inventory_has_one():
    host = {"inventory_hostname": "a", "ansible_host": "192.0.2.1", "landline_address": "2001:db8::1"}
    assert filters.broker_urls([host], 8092, 10) == ["http://[2001:db8::1]:8092"]
    assert filters.zookeeper_connect([host], 2181) == "[2001:db8::1]:2181"
    assert zookeeper.zookeeper_lines([host], 2888, 3888) == {"1": "[2001:db8::1]:2888:3888"}
    assert security.broker_bootstrap([host], "tls", 9093) == "[2001:db8::1]:9093"
    # A client may check the certificate against either.
    assert security.broker_certificate_names(host) == ["a", "192.0.2.1", "2001:db8::1"]
    own = {**host, "zookeeper_address": "zk-a", "broker_advertised_host": "kafka-a"}
    assert filters.zookeeper_connect([own], 2181) == "zk-a:2181"
    assert filters.broker_urls([own], 8092, 10) == ["http://kafka-a:8092"]


@pytest.mark.parametrize(
    ("host", "listens_on"), [("2001:db8::1", "::"), ("192.0.2.1", "0.0.0.0"), ("kafka-a", "0.0.0.0")]
)
def test_all_interfaces_are_those_of_the_family_of_the_address(host, listens_on):
    assert filters.any_address(host) == listens_on


def test_the_role_of_spark_brackets_an_ipv6_address():
    """As Ansible has it from the inventory, without its other plugins."""
    environment = SandboxedEnvironment()
    ours = spark.FilterModule().filters()
    environment.filters |= {f"landline.cluster.{name}": function for name, function in ours.items()}
    variables = yaml.safe_load((ROOT / "roles/spark/vars/main.yml").read_text())
    hosts = [{"ansible_host": "192.0.2.1", "landline_address": "2001:db8::1"}, {"spark_address": "spark-b"}]
    text = environment.from_string(variables["spark_master_url"]).render(
        spark_master_addresses=spark.spark_addresses(hosts), spark_master_port=7077
    )
    assert text == "spark://[2001:db8::1]:7077,spark-b:7077"


def test_zookeepers_servers_are_joined_with_the_chroot_at_the_end():
    hosts = [{"inventory_hostname": "a", "ansible_host": "192.0.2.1"}, {"inventory_hostname": "b"}]
    assert filters.zookeeper_connect(hosts, 2181, "/landline") == "192.0.2.1:2181,b:2181/landline"


@pytest.mark.parametrize(
    ("hosts", "clashes"),
    [
        ([{}, {}, {}], []),
        ([{"brokers_per_host": 3}, {"brokers_per_host": 3}], []),
        (
            [{"brokers_per_host": 2, "broker_first_id": first} for first in (1, 2, 3)],
            ["broker 2 on h0 and h1", "broker 3 on h1 and h2"],
        ),
        (
            [{"brokers_per_host": count} for count in (3, 1, 1)],
            ["broker 2 on h0 and h1", "broker 3 on h0 and h2"],
        ),
        (
            [
                {"broker_first_id": "1"},
                {"broker_first_id": "11", "broker_count": "10"},
                {"broker_first_id": 21},
            ],
            [],
        ),
    ],
)
def test_ids_that_two_brokers_would_have_are_named_with_their_hosts(hosts, clashes):
    named = [{"inventory_hostname": f"h{place}", **host} for place, host in enumerate(hosts)]
    assert filters.broker_id_clashes(named) == clashes


def looks(*states, broker_runs=True, stopped=()):
    """What three hosts, each with a server and a broker, see of the servers a, b and c."""
    servers = dict(zip("abc", states, strict=True))
    return [
        {"servers": servers, "broker_runs": broker_runs, "server_stopped": server in stopped}
        for server in servers
    ]


@pytest.mark.parametrize("mended", [True, False])
def test_a_deployment_begins_where_zookeeper_serves_or_may_or_no_broker_runs(mended):
    for seen in (
        looks("serves", "silent", "silent"),
        looks("silent", "unclear", "silent"),
        looks("silent", "silent", "silent", broker_runs=False),
        [],
    ):
        assert zookeeper.zookeeper_doubts(seen, mended) == []


def test_a_deployment_without_a_quorum_says_which_servers_are_missing():
    assert zookeeper.zookeeper_doubts(looks("alone", "silent", "silent", stopped="bc"), False) == [
        "a answers that it serves nobody",
        "b does not answer",
        "c does not answer",
    ]


def test_a_broker_is_left_behind_if_no_server_that_it_knows_stays():
    def host(name, **brokers):
        looked = {"broker_connects": {f"landline-broker@{key[1:]}.service": brokers[key] for key in brokers}}
        return {"inventory_hostname": name, "broker_quorum_looked": looked}

    hosts = [
        host("h1", b1=["a:2181"], b2=["a:2181", "b:2181"]),
        host("h2"),
        {"inventory_hostname": "h3"},  # it was not reached
    ]
    assert zookeeper.zookeeper_left_behind(hosts, "b:2181,c:2181/kafka") == [
        "landline-broker@1.service on h1 knows a:2181"
    ]
    assert zookeeper.zookeeper_left_behind(hosts, "a:2181") == []
    assert len(zookeeper.zookeeper_left_behind(hosts, "a,b", leaving="a")) == 1, (
        "the inventory names it still"
    )
    assert zookeeper.zookeeper_left_behind([host("h1", b1=["[fd00:0::1]:2181"])], "[fd00::1]") == []


def test_servers_leave_that_serve_outside_of_the_group():
    def host(name, state="current", mode="follower", present=True):
        looked = {"state": state, "mode": mode, "present": present}
        return {"inventory_hostname": name, "zookeeper_looked": looked}

    hosts = [
        host("in"),
        host("out"),
        host("changed", state="changed", mode="leader"),
        host("stopped", state="stopped"),
        host("alone", mode=""),
        host("none", present=False),
        {"inventory_hostname": "off"},
    ]
    assert zookeeper.zookeeper_leavers(hosts, ["in"]) == ["out", "changed"]


def test_a_server_is_known_by_the_host_that_sees_most_of_it():
    cut_off = {
        "servers": {"a": "silent", "b": "silent", "c": "silent"},
        "broker_runs": True,
        "server_stopped": False,
    }
    assert zookeeper.zookeeper_doubts([cut_off, *looks("serves", "silent", "silent")], False) == []


@pytest.mark.parametrize(
    ("states", "stopped", "begins"),
    [
        (("alone", "silent", "silent"), "bc", True),
        (("alone", "silent", "silent"), "b", True),
        (("alone", "silent", "silent"), "", False),  # frozen, or on hosts that are off
        (("silent", "silent", "silent"), "b", False),
        (("alone", "alone", "alone"), "", False),  # nobody is stopped: there is nothing to start
    ],
)
def test_a_deployment_that_starts_servers_begins_where_that_may_make_a_quorum(states, stopped, begins):
    assert (zookeeper.zookeeper_doubts(looks(*states, stopped=stopped), True) == []) is begins


def test_an_ensemble_that_was_left_on_its_way_to_one_server_is_mended():
    left = {"servers": {"a": "alone"}, "broker_runs": True, "server_stopped": False}
    assert zookeeper.zookeeper_doubts([left], True) == []
    assert zookeeper.zookeeper_doubts([left], False) == ["a answers that it serves nobody"]


def test_brokers_have_a_listener_of_their_own_where_it_has_a_port():
    brokers = filters.broker_instances({**SETTINGS, **BOTH})
    properties = brokers[1]["properties"]
    assert properties["listeners"] == "PLAINTEXT://0.0.0.0:9102,BROKER://0.0.0.0:9101"
    assert properties["advertised.listeners"] == "PLAINTEXT://192.0.2.1:9102,BROKER://192.0.2.1:9101"
    assert properties["inter.broker.listener.name"] == "BROKER"
    assert "inter.broker.listener.name" not in filters.broker_instances(SETTINGS)[1]["properties"]
