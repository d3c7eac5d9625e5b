"""How a deployment asks brokers over HTTP: by what they speak now, whatever they are to speak in the end."""

import socket
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from broker.config.broker_config import BrokerConfig
from tests.support.certificates import Authority
from tests.support.deploy_code import load
from tests.unit.deploy.test_deploy_filters import SECURE, SETTINGS, filters, fingerprints
from tests.unit.server.test_http_security import TOKEN, Site
from tools.inventory import Inventory

health = load("plugins/modules/broker_health.py")
instances = load("plugins/modules/broker_instances_info.py")
asking = load("plugins/module_utils/broker_http.py")
security = load("plugins/filter/broker_security.py")
collect = load("plugins/modules/support_collect.py")

WAIT_S = 20
HTTPS = "landline.http.ssl.keystore.location=/etc/landline/broker.pem\n"


@pytest.fixture
def site(tmp_path):
    """The HTTP port of broker 1, the controller."""
    made = Site(tmp_path)
    made.ca = Authority()
    made.renew()
    made.status = {"broker_id": 1, "state": "RunningAsController", "is_controller": True}
    (tmp_path / "ca.pem").write_bytes(made.ca.pem)
    yield made
    made.stop()


def wanted(scheme, port, tmp_path, file=""):
    """A broker whose HTTP port is to speak this, and speaks what its file of properties says."""
    config = tmp_path / "broker-1.properties"
    config.write_text(f"broker.id=1\n{file}")
    url = f"{scheme}://127.0.0.1:{port}"
    return {"id": 1, "url": url, "unit": "landline-broker@1.service", "config": str(config)}


@pytest.mark.parametrize("token", [True, False])
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_broker_is_judged_by_what_it_speaks_and_not_by_what_it_is_to_speak(
    site, tmp_path, scheme, tls, token
):
    port = site.start(tls=tls, token=token).endpoint.port
    broker, ca = wanted(scheme, port, tmp_path, HTTPS if tls else ""), str(tmp_path / "ca.pem")
    https = f"127.0.0.1:{port}" if tls else ""
    assert instances.seen(broker, WAIT_S, ca, TOKEN)[:2] == ("controller", https)
    assert health.look(broker, WAIT_S, ca, TOKEN) == (None, 0)
    wrong, _ = health.look({**broker, "id": 2}, WAIT_S, ca, TOKEN)
    assert (
        wrong
        == f"broker 1 answers at {'https' if tls else 'http'}://127.0.0.1:{port}, where broker 2 should be"
    )


def test_without_the_token_a_broker_that_serves_is_not_broken(site, tmp_path):
    broker = wanted("http", site.start(tls=False).endpoint.port, tmp_path)
    assert instances.seen(broker, WAIT_S)[:2] == ("others", "")


@contextmanager
def port_that_wants_a_token():
    """Yields the port, and what it was sent as Authorization."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            sent.append(self.headers["Authorization"])
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port, sent
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("scheme", "file", "sent"),
    [
        ("http", "", [None, f"Bearer {TOKEN}"]),
        ("http", HTTPS, [None, f"Bearer {TOKEN}"]),
        ("https", "", [None, f"Bearer {TOKEN}"]),
        ("https", HTTPS, [None]),
    ],
)
def test_the_token_is_not_sent_in_clear_to_a_port_that_has_no_reason_to_want_it_so(
    site, tmp_path, scheme, file, sent
):
    with port_that_wants_a_token() as (port, found):
        broker = wanted(scheme, port, tmp_path, file)
        assert asking.ask(broker, "/status", WAIT_S, str(tmp_path / "ca.pem"), TOKEN).code == 401
    assert found == sent


def test_a_port_with_a_certificate_of_another_ca_gets_no_token_and_no_trust(site, tmp_path):
    broker = wanted("https", site.start().endpoint.port, tmp_path, HTTPS)
    (tmp_path / "ca.pem").write_bytes(Authority("another").pem)
    answer = asking.ask(broker, "/status", WAIT_S, str(tmp_path / "ca.pem"), TOKEN)
    assert answer.code == 0
    assert "CERTIFICATE_VERIFY_FAILED" in answer.body


def asked_for_support(broker, tmp_path):
    """What a support bundle has of a broker's /status."""
    (tmp_path / "http-tokens").write_text(f"{TOKEN}\n")
    properties = {
        "landline.http.host": "127.0.0.1",
        "landline.http.port": broker["url"].rpartition(":")[2],
        "landline.http.ssl.keystore.location": "/etc/landline/broker.pem",
        "landline.http.token.file": str(tmp_path / "http-tokens"),
    }
    return collect.http(properties, broker["config"], "/status")


@pytest.mark.parametrize("tls", [True, False])
def test_a_support_bundle_asks_by_what_the_broker_speaks_and_by_no_proxy(site, tmp_path, tls, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    broker = wanted("https", site.start(tls=tls, token=tls).endpoint.port, tmp_path, HTTPS)
    assert '"broker_id"' in asked_for_support(broker, tmp_path)


def test_a_support_bundle_sends_no_token_to_a_certificate_of_another_ca(site, tmp_path):
    broker = wanted("https", site.start().endpoint.port, tmp_path, HTTPS)
    (tmp_path / "ca.pem").write_bytes(Authority("another").pem)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        asked_for_support(broker, tmp_path)


def test_a_port_that_hangs_costs_one_wait(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = wanted("http", listener.getsockname()[1], tmp_path)
        (tmp_path / "ca.pem").write_bytes(Authority().pem)
        assert instances.seen(broker, 0.2, str(tmp_path / "ca.pem"))[:2] == ("broken", "")
        listener.settimeout(0)
        tries = 0
        with suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
                tries += 1
        assert tries == 1


def test_files_that_are_missing_are_a_cluster_without_tls_and_without_a_token(site, tmp_path):
    broker = wanted("http", site.start(tls=False, token=False).endpoint.port, tmp_path)
    assert asking.first_line(str(tmp_path / "none")) == ""
    assert instances.seen(broker, WAIT_S, str(tmp_path / "none"), "")[:2] == ("controller", "")


# -- what the brokers get

PROTECTED = {"http_tls": True, "has_http_tokens": True}


def test_a_protected_endpoint_has_the_hosts_certificate_and_a_file_of_tokens(tmp_path):
    [broker] = filters.broker_instances({**SETTINGS, **SECURE, **PROTECTED, "count": 1})
    assert broker["url"] == "https://192.0.2.1:8092"
    properties = broker["properties"]
    assert properties["landline.http.ssl.keystore.location"] == "/etc/landline/broker.pem"
    assert properties["landline.http.token.file"] == "/etc/landline/http-tokens"
    BrokerConfig.from_properties({**properties, "zookeeper.connect": "a:2181"})


def test_an_endpoint_that_is_not_protected_has_no_key_of_it():
    [broker] = filters.broker_instances({**SETTINGS, "count": 1})
    assert not [
        key for key in broker["properties"] if key.startswith("landline.http.") and key[-5:] != ".port"
    ]


@pytest.mark.parametrize("key", list(PROTECTED))
def test_turning_protection_on_restarts_the_brokers(key):
    assert not set(fingerprints()) & set(fingerprints(**{key: True}))


def test_all_addresses_have_the_scheme():
    hosts = [{"inventory_hostname": "a", "ansible_host": "2001:db8::1"}]
    assert filters.broker_urls(hosts, 8092, 10, True) == ["https://[2001:db8::1]:8092"]


def test_one_token_or_a_list_of_them_is_a_list():
    assert security.broker_http_tokens("") == security.broker_http_tokens([]) == []
    assert security.broker_http_tokens("a") == ["a"]
    assert security.broker_http_tokens(["b", "a"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, ["a", "192.0.2.1"]),
        ({"broker_http_host": "192.0.2.9"}, ["a", "192.0.2.1"]),
        ({"broker_http_host": "192.0.2.9", "landline_http_tls": True}, ["a", "192.0.2.1", "192.0.2.9"]),
        ({"broker_http_host": "[2001:db8::9]", "landline_http_tls": True}, ["a", "192.0.2.1", "2001:db8::9"]),
        ({"broker_http_host": "0.0.0.0", "landline_http_tls": True}, ["a", "192.0.2.1"]),
    ],
)
def test_a_certificate_is_also_for_the_endpoints_own_address(variables, names):
    host = {"inventory_hostname": "a", "ansible_host": "192.0.2.1", **variables}
    assert security.broker_certificate_names(host) == names


def test_an_ipv6_address_in_brackets_is_listened_on_without_them():
    assert filters.address_or_nothing("[2001:db8::1]") == "2001:db8::1"
    changed = {**SETTINGS, "http_host": "[2001:db8::1]", "http_address": "[2001:db8::1]"}
    broker = filters.broker_instances(changed)[0]
    assert broker["properties"]["landline.http.host"] == "2001:db8::1"
    assert broker["url"] == "http://[2001:db8::1]:8092"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("2001:db8::9", "http://[2001:db8::9]:8092"),
        ("[2001:db8::9]", "http://[2001:db8::9]:8092"),
        ("", "http://192.0.2.1:8092"),
        ("0.0.0.0", "http://192.0.2.1:8092"),
    ],
)
def test_the_tools_ask_at_the_address_that_http_listens_on(host, url):
    variables = {"a": {"ansible_host": "192.0.2.1", "broker_http_host": host}}
    [broker] = Inventory({"brokers": {"hosts": ["a"]}, "_meta": {"hostvars": variables}}).brokers()
    assert broker.url == url
