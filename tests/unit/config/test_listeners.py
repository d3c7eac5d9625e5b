"""Which listeners a broker has, which of them are for other brokers, and why some are refused."""

import pytest

from broker.config.endpoint import Endpoint
from broker.config.problems import ConfigError
from tests.support.broker_configs import make, problems_of


def test_two_listeners_on_one_port_are_refused_unless_the_system_chooses():
    both = "PLAINTEXT://:{0},OTHER://h:{0}"
    names = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}
    assert "the same port 9092" in problems_of({**names, "listeners": both.format(9092)})["listeners"]
    assert len(make(props={**names, "listeners": both.format(0)}).listeners) == 2


def test_no_clients_at_all_are_let_in_where_the_brokers_have_a_listener_of_their_own():
    names = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT"}
    listeners = {"listeners": "PLAINTEXT://:9092,BROKER://:9093", "inter.broker.listener.name": "BROKER"}
    assert make(props={**names, **listeners, "max.connections": "0"}).int("max.connections") == 0
    with pytest.raises(ConfigError, match="and the brokers neither"):
        make().with_dynamic({}, {"max.connections": "0"})


def test_both_ways_to_name_the_inter_broker_listener_are_refused():
    given = {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}
    assert "both set" in problems_of(given)["inter.broker.listener.name"]


def test_advertised_listeners_must_have_the_brokers_own():
    props = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        "listeners": "PLAINTEXT://:9092,OUT://:9093",
        "advertised.listeners": "OUT://h:9093",
    }
    assert "lacks PLAINTEXT" in problems_of(props)["advertised.listeners"]


def test_endpoints_are_read_with_names_in_capitals_and_ipv6():
    config = make(
        props={
            "listeners": "internal://[::1]:0,PLAINTEXT://h.example:9092",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "internal",
        }
    )
    assert config.listeners == [
        Endpoint("::1", 0, "INTERNAL", "PLAINTEXT"),
        Endpoint("h.example", 9092, "PLAINTEXT", "PLAINTEXT"),
    ]
    assert config.inter_broker_listener_name == "INTERNAL"
    assert str(config.listeners[0]) == "INTERNAL://[::1]:0"


def test_a_listener_on_every_interface_is_advertised_by_this_hosts_name():
    advertised = make(listeners="PLAINTEXT://:9092").advertised_listeners
    assert advertised[0].host
    assert advertised[0].port == 9092


TWO = {
    "listeners": "CLIENT://h:9092,BROKER://h:9091,CONTROLLER://h:9090",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
}


def test_the_controllers_requests_may_have_a_listener_of_their_own():
    assert make(props=TWO).controller_listener_name == "BROKER"
    config = make(props={**TWO, "control.plane.listener.name": "controller"})
    assert config.controller_listener_name == "CONTROLLER"
    assert config.inter_broker_listener_name == "BROKER"
    assert config.listeners_of_brokers == {"BROKER", "CONTROLLER"}


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("CONTROL", {}, "CONTROL is not among the listeners (CLIENT, BROKER, CONTROLLER)"),
        (
            "CONTROLLER",
            {"advertised.listeners": "CLIENT://h:9092,BROKER://h:9091"},
            "the advertised.listeners",
        ),
        ("BROKER", {}, "BROKER is the inter-broker listener"),
    ],
)
def test_a_listener_that_no_controller_could_use_is_refused(name, more, message):
    key = "control.plane.listener.name"
    assert message in problems_of({**TWO, **more, key: name})[key]


@pytest.mark.parametrize(
    ("listeners", "named", "own"),
    [
        ("PLAINTEXT://h:9092", {}, set()),
        (
            "PLAINTEXT://h:9092,CONTROLLER://h:9090",
            {"control.plane.listener.name": "CONTROLLER"},
            {"CONTROLLER"},
        ),
        ("PLAINTEXT://h:9092,CLIENT://h:9090", {}, {"PLAINTEXT"}),
    ],
)
def test_a_listener_that_clients_need_is_not_one_of_brokers_alone(listeners, named, own):
    protocols = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT"
    }
    assert make(props={"listeners": listeners, **protocols, **named}).listeners_of_brokers == own
