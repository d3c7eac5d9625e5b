"""An IPv6 address stands in brackets before a port, in every URL and in every host:port."""

import re

import pytest

from broker.__main__ import _print_ready
from broker.config.endpoint import Endpoint
from broker.metrics.registry import Metrics
from broker.network.acceptor import BindError, _bind
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.server.http.http_endpoint import HttpEndpoint
from broker.server.stopping.own_status import http_url
from broker.server.stopping.stop_view import _member
from broker.zookeeper.znodes import BrokerRegistration, LiveBroker
from sparkctl.inventory import Host, SparkCluster
from tests.support.deploy_code import ROOT
from tools.inventory import Inventory

# For documentation: no host has it.
ADDRESS = "2001:db8::1"
PLACE = re.escape("[2001:db8::1]:9092")
# Code that puts a host and a port together, but for the ids of connections, which are Kafka's.
TOGETHER = re.compile(r"(?:host|address)\b[^{}\[]*\}{1,2}:\{")
# Where a part that meets the others only at public interfaces has its function for it.
FUNCTIONS = {"broker/config/endpoint.py", "plugins/module_utils/addresses.py", "sparkctl/inventory.py"}


def endpoint(port):
    made = HttpEndpoint(
        ADDRESS,
        port,
        Metrics(),
        status=dict,
        unready_reasons=list,
        is_alive=lambda: True,
        is_default_port=False,
    )
    made.startup()


@pytest.mark.parametrize("listen", [endpoint, lambda port: _bind(Endpoint(ADDRESS, port, "PLAINTEXT"), 0)])
def test_a_port_that_cannot_be_bound_is_named_with_the_address_in_brackets(listen):
    with pytest.raises(BindError, match=PLACE):
        listen(9092)


def test_a_broker_that_is_not_reached_is_named_with_its_address_in_brackets():
    channel = BrokerChannel(ADDRESS, 9092, client_id="test", connect_timeout_ms=1)
    assert "[2001:db8::1]:9092" in repr(channel)
    channel.close()
    with pytest.raises(ChannelError, match=PLACE):
        channel.connect()


def test_a_broker_that_a_stop_waits_for_is_named_with_its_address_in_brackets():
    registration = BrokerRegistration(2, (Endpoint(ADDRESS, 9092, "PLAINTEXT"),))
    assert _member(LiveBroker(registration, 1, 1), "PLAINTEXT").address == "[2001:db8::1]:9092"


def test_a_broker_is_asked_over_http_at_its_address_in_brackets():
    properties = {"landline.http.host": ADDRESS, "landline.http.port": "8092"}
    assert http_url(properties) == "http://[2001:db8::1]:8092"


def test_a_broker_that_is_ready_says_so_with_its_address_in_brackets(capsys, tmp_path):
    class Ready:
        """Of a server and its configuration, what is said."""

        bound_port = 9092
        listeners = (Endpoint("::1", 0, "PLAINTEXT"),)
        url = ""

        @property
        def http(self):
            return self

    _print_ready(Ready(), Ready(), tmp_path)
    assert "ready on [::1]:9092" in capsys.readouterr().out


def test_tools_reach_the_inventorys_brokers_at_addresses_in_brackets():
    listing = {"brokers": {"hosts": ["a"]}, "_meta": {"hostvars": {"a": {"ansible_host": ADDRESS}}}}
    inventory = Inventory(listing)
    (broker,) = inventory.brokers()
    assert broker.url == "http://[2001:db8::1]:8092"
    assert inventory.bootstrap() == "[2001:db8::1]:9092"


def test_spark_is_reached_at_an_address_in_brackets():
    cluster = SparkCluster(Host("m", ADDRESS, ADDRESS), ())
    assert cluster.url == "spark://[2001:db8::1]:7077"
    assert cluster.ui_urls() == ["http://[2001:db8::1]:8080"]


def test_a_host_and_a_port_are_put_together_by_one_function_of_each_part():
    places = (
        "broker",
        "tools",
        "sparkctl",
        "plugins",
        "roles",
        "playbooks",
    )
    files = [
        path
        for place in places
        for path in ROOT.joinpath(place).rglob("*.*")
        if path.suffix in {".py", ".yml", ".j2"}
    ]
    found = [
        str(path.relative_to(ROOT))
        for path in files
        for line in path.read_text().splitlines()
        if TOGETHER.search(line)
    ]
    assert sorted(found) == sorted(FUNCTIONS)
