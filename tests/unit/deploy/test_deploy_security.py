"""How a deployment secures listeners: the steps from one set of them to another, certificates, and wrong settings."""

import datetime as dt
import re
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.server.tls import make_tls
from tests.support.deploy_code import load
from tests.support.journal_shipper import load_shipper
from tests.unit.deploy.test_deploy_filters import BOTH, SECURE, SETTINGS, filters

access = load("plugins/filter/broker_access.py")
security = load("plugins/filter/broker_security.py")
certificates = load("plugins/modules/broker_certificates.py")
certificate_files = load("plugins/module_utils/certificate_files.py")
presents = load("plugins/modules/broker_presents.py")

SECURED = security.broker_wanted("sasl_ssl", [], 9091)
PLAIN = security.broker_wanted("none", [], 9091)
ROLES = Path(__file__).resolve().parents[3] / "roles"
BROKERS = "User:CN=landline-broker"


def lines(listeners, between):
    """What a host's properties file says of its one broker."""
    at = ",".join(f"{name}://a:{port}" for port, name in enumerate(listeners, 9091))
    return f"advertised.listeners={at}\ninter.broker.listener.name={between}"


def hosts_with(looks):
    found = []
    for name, text in looks.items():
        look = {} if text is None else {"broker_listeners": {"stdout": text}}
        found.append({"inventory_hostname": name, **look})
    return found


def plans(looks, wanted, may_change):
    return {name: security.broker_plan(hosts_with(looks), name, wanted, may_change) for name in looks}


def carried_out(looks, plan, names):
    """What the files say after these hosts were rolled by the plan."""
    done = {name: lines(plan[name]["listeners"], plan[name]["between"]) for name in names}
    return {**looks, **done}


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (lines(["PLAINTEXT", "BROKER"], "BROKER"), SECURED),
        ("advertised.listeners=PLAINTEXT://a:9092", SECURED),
        (lines(["SASL_SSL", "BROKER_SSL"], "BROKER_SSL"), PLAIN),
        (lines(["SASL_SSL", "BROKER_SSL"], "BROKER_SSL"), security.broker_wanted("none", [], 0)),
        (lines(["SASL_SSL", "BROKER_SSL"], "BROKER_SSL"), security.broker_wanted("tls", ["sasl_ssl"], 9091)),
        ("advertised.listeners=PLAINTEXT://a:9092", PLAIN),
    ],
)
def test_at_every_moment_of_a_change_each_broker_has_the_listener_that_any_other_uses(before, wanted):
    looks = dict.fromkeys("abc", before)
    for step in range(3):
        plan = plans(looks, wanted, step > 0)
        for name in "abc":  # one after another
            looks = carried_out(looks, plan, [name])
            found = [security._look(host) for host in hosts_with(looks)]
            used = set().union(*(each["uses"] for each in found))
            assert all(used <= each["has"] for each in found)
    assert plans(looks, wanted, True) == dict.fromkeys("abc", wanted)
    assert looks["a"] == lines(wanted["listeners"], wanted["between"])


def test_a_change_waits_where_it_is_for_a_host_that_is_off():
    before = lines(["PLAINTEXT", "BROKER"], "BROKER")
    both = {"listeners": ["PLAINTEXT", "BROKER", "SASL_SSL", "BROKER_SSL"], "between": "BROKER"}
    looks = {"a": before, "b": before, "c": None}
    for _ in range(3):
        plan = plans(looks, SECURED, True)
        assert {plan["a"]["between"], plan["b"]["between"]} == {"BROKER"}
        assert plan["a"] == both
        looks = carried_out(looks, plan, "ab")


def test_a_broker_whose_turn_was_refused_holds_up_the_next_step():
    before = lines(["PLAINTEXT", "BROKER"], "BROKER")
    looks = carried_out(
        dict.fromkeys("abc", before), plans(dict.fromkeys("abc", before), SECURED, False), "ab"
    )
    assert plans(looks, SECURED, True)["a"]["between"] == "BROKER"
    looks = carried_out(looks, plans(looks, SECURED, True), "c")
    over = plans(looks, SECURED, True)
    assert over["a"]["between"] == "BROKER_SSL"
    looks = carried_out(looks, over, "ab")
    assert "PLAINTEXT" in plans(looks, SECURED, True)["a"]["listeners"]


def test_a_new_host_speaks_as_the_others_do_and_a_new_cluster_as_it_is_to():
    assert plans(dict.fromkeys("ab", ""), SECURED, False) == dict.fromkeys("ab", SECURED)
    plan = plans({"a": "", "b": lines(["PLAINTEXT", "BROKER"], "BROKER")}, SECURED, False)["a"]
    assert plan == {"listeners": ["BROKER", "SASL_SSL", "BROKER_SSL"], "between": "BROKER"}


def test_listeners_stay_as_long_as_they_are_named():
    kept = security.broker_wanted("sasl_ssl", ["none"], 9091)
    assert kept == {"listeners": ["PLAINTEXT", "BROKER", "SASL_SSL", "BROKER_SSL"], "between": "BROKER_SSL"}


def properties_of(**changed):
    return filters.broker_instances({**SETTINGS, "count": 1, "properties": {}, **changed})[0]["properties"]


def test_secured_brokers_know_their_certificates_and_who_may_do_everything():
    properties = properties_of(**SECURE)
    assert properties["listeners"] == "SASL_SSL://0.0.0.0:9094,BROKER_SSL://0.0.0.0:9095"
    assert properties["listener.security.protocol.map"] == "SASL_SSL:SASL_SSL,BROKER_SSL:SSL"
    assert properties["ssl.keystore.location"] == "/etc/landline/broker.pem"
    assert properties["listener.name.broker_ssl.ssl.client.auth"] == "required"
    assert properties["super.users"] == BROKERS


@pytest.mark.parametrize(
    "names",
    [["SSL", "BROKER_SSL"], ["SASL_SSL", "BROKER_SSL"], ["PLAINTEXT", "BROKER", "SASL_SSL", "BROKER_SSL"]],
)
def test_a_broker_starts_with_its_secured_properties(tmp_path, names):
    keep(tmp_path)
    shutil.copy(tmp_path / "h1.pem", tmp_path / "broker.pem")
    settings = {**BOTH, "listeners": names, "between": "BROKER_SSL", "config_dir": str(tmp_path)}
    config = BrokerConfig.from_properties({**properties_of(**settings), "zookeeper.connect": "a:2181"})
    assert make_tls(config).between_brokers is not None


@pytest.mark.parametrize("nameless", ["PLAINTEXT", "SSL"])
def test_clients_without_a_name_lose_nothing_as_long_as_they_have_a_listener(nameless):
    properties = properties_of(listeners=[nameless, "SASL_SSL", "BROKER_SSL"], between="BROKER_SSL")
    assert properties["super.users"] == f"{BROKERS};User:ANONYMOUS"


def test_without_logins_there_is_no_authorizer_and_without_tls_no_certificate():
    assert "super.users" not in properties_of(listeners=["SSL", "BROKER_SSL"], between="BROKER_SSL")
    assert not [key for key in properties_of() if key.startswith("ssl.")]


# -- settings

GOOD = {
    "mode": "sasl_ssl",
    "also": [],
    "directory": "/ca",
    "certificate": "",
    "trusted": "",
    "users": [{"name": "landline-services", "password": "pw"}],
    "acls": [{"principal": "User:a", "resource": "topic", "name": "t", "operations": ["Read"]}],
    "quotas": [{"user": "<default>", "values": {"producer_byte_rate": 1}}],
    "service_user": "landline-services",
    "properties": {},
    "super_users": [BROKERS],
    "http_tls": True,
    "http_token": "",
    "extras": ["gssapi"],
}


def test_good_settings_have_no_problems():
    assert access.broker_security_problems(GOOD) == []
    nothing = {"mode": "none", "directory": "", "users": [], "acls": [], "quotas": [], "http_tls": False}
    assert access.broker_security_problems({**GOOD, **nothing}) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mode": "ssl"}, "landline_security is 'ssl', which is none of none, tls, sasl_ssl"),
        ({"also": ["plain"]}, "landline_security is 'plain'"),
        ({"directory": ""}, "landline_certificates_dir is missing"),
        ({"certificate": "/a.pem"}, "belong together"),
        ({"properties": {"listeners": "X://:1"}}, "broker_properties sets listeners"),
        ({"users": []}, "landline_users has no user landline-services"),
        ({"users": "alice"}, "landline_users must be a list"),
        ({"users": [*GOOD["users"], {"name": "a", "password": ""}]}, "entry 2: the password of a is missing"),
        (
            {"users": [*GOOD["users"], {"name": "a", "password": "pw", "mechanisms": ["PLAIN"]}]},
            "is 'PLAIN', which is none of SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            {"users": [*GOOD["users"], {"name": "CN=landline-broker", "password": "p"}]},
            "the name of the brokers",
        ),
        (
            {"acls": [{**GOOD["acls"][0], "operations": ["Raed"]}]},
            "an operation is 'Raed', which is none of All",
        ),
        (
            {"acls": [{**GOOD["acls"][0], "resource": "topics"}]},
            "resource is 'topics', which is none of topic",
        ),
        ({"acls": [{**GOOD["acls"][0], "principal": "a"}]}, "Type:name is expected"),
        (
            {"acls": [{**GOOD["acls"][0], "state": "gone"}]},
            "state is 'gone', which is none of present, absent",
        ),
        ({"acls": [{**GOOD["acls"][0], "hosts": "*"}]}, "hosts is unknown: principal, resource"),
        (
            {"quotas": [{"user": "a", "values": {"rate": 1}}]},
            "a key is 'rate', which is none of producer_byte_rate",
        ),
        ({"quotas": [{"user": "a", "values": {"producer_byte_rate": "1M"}}]}, "producer_byte_rate is '1M'"),
        ({"quotas": [{"values": {"producer_byte_rate": 1}}]}, "must be named"),
        (
            {"extras": ["zookeeper-sasl"]},
            "has 'zookeeper-sasl', which a deploy cannot install: gssapi it can",
        ),
        ({"extras": "gssapi"}, "landline_extras must be a list"),
        ({"mode": "none"}, "landline_http_tls needs the certificates of landline_security"),
        ({"http_token": "short-secret"}, "landline_http_token, token 1, is none: 16 to 512 letters"),
        ({"http_token": ["a" * 16, "b" * 15 + " "]}, "landline_http_token, token 2, is none"),
        ({"http_token": ["a" * 16] * 17}, "has 17 tokens"),
        (
            {"properties": {"landline.http.token.file": "/t"}},
            "sets landline.http.token.file: take it away, and set landline_http_token",
        ),
    ],
)
def test_wrong_settings_are_told_with_what_is_known(changed, words):
    (problem,) = access.broker_security_problems({**GOOD, **changed})
    assert words in problem
    assert "secret" not in problem


# -- the settings of clients


def test_a_client_reads_its_settings_whatever_is_in_a_password(tmp_path):
    pem = "head\n-----BEGIN CERTIFICATE-----\nAAAA\nBB==\n-----END CERTIFICATE-----\n"
    settings = {"mode": "sasl_ssl", "bootstrap": "a:9094", "trusted": pem, "mechanism": "SCRAM-SHA-512"}
    password = 'a"b\\c d=;#n\\n'
    found = security.client_properties({**settings, "user": "svc", "password": password})
    file = tmp_path / "client.properties"
    file.write_text("# one\n" + "".join(f"{key}={value}\n" for key, value in found.items()))
    login = load_shipper().Login.read(file)
    assert (login.protocol, login.mechanism, login.user, login.password) == (
        "SASL_SSL",
        "SCRAM-SHA-512",
        "svc",
        password,
    )
    assert login.trusted == "-----BEGIN CERTIFICATE-----\nAAAA\nBB==\n-----END CERTIFICATE-----"
    assert password not in repr(login)


def test_a_client_without_security_has_addresses_alone():
    hosts = [
        {"inventory_hostname": "a", "ansible_host": "2001:db8::1"},
        {"inventory_hostname": "b", "broker_kafka_port": 7000},
    ]
    bootstrap = security.broker_bootstrap(hosts, "none", 9092)
    assert bootstrap == "[2001:db8::1]:9092,b:7000"
    assert security.client_properties({"mode": "none", "bootstrap": bootstrap}) == {
        "bootstrap.servers": bootstrap,
        "security.protocol": "PLAINTEXT",
    }


# -- certificates


@pytest.mark.parametrize("written", ["2001:DB8::1", "2001:db8:0:0::1", "[2001:db8::0001]"])
def test_an_address_is_named_as_certificates_have_it(written):
    """Otherwise each deploy would issue another certificate."""
    host = {"inventory_hostname": "Kafka-A", "ansible_host": written}
    assert security.broker_certificate_names(host) == ["Kafka-A", "2001:db8::1"]


def test_a_certificate_is_for_the_name_and_the_addresses_of_its_host():
    host = {"inventory_hostname": "a", "ansible_host": "[2001:db8::1]", "broker_advertised_host": "a"}
    assert security.broker_certificate_names(host) == ["a", "2001:db8::1"]
    given = {
        **host,
        "landline_certificate_file": "/certs/a.pem",
        "landline_trusted_file": "/certs/ca.pem",
    }
    assert security.broker_certificate_hosts([given]) == [
        {"name": "a", "names": ["a", "2001:db8::1"], "file": "/certs/a.pem", "trusted": "/certs/ca.pem"}
    ]


def keep(directory, may_write=True, **changed):
    hosts = [{"name": "h1", "names": ["h1", "127.0.0.1"], "file": ""}]
    params = {"directory": str(directory), "hosts": hosts, "days": 365, "renew_days": 30, "renew": False}
    steps = {"rollover": "", "hosts_are_done": False}
    return certificates.keep({**params, **steps, **changed}, may_write)


def test_certificates_are_issued_once(tmp_path):
    found = keep(tmp_path / "ca")
    assert (found["issued"], found["changed"]) == ({"h1": "it had none"}, True)
    assert found["hosts"]["h1"]["principal"] == BROKERS
    path = tmp_path / "ca" / "h1.pem"
    assert found["hosts"]["h1"]["path"] == str(path)
    assert {each.stat().st_mode & 0o777 for each in (path, tmp_path / "ca" / "ca.key")} == {0o600}
    before = path.read_bytes()
    again = keep(tmp_path / "ca")
    assert (again["issued"], again["changed"], path.read_bytes()) == ({}, False, before)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"renew": True}, "it was to be renewed"),
        ({"renew_days": 400}, "only"),
        ({"hosts": [{"name": "h1", "names": ["h1"], "file": ""}]}, "its names have changed"),
        ({"hosts": [{"name": "h1", "names": ["h1", "192.0.2.1"], "file": ""}]}, "is not for 192.0.2.1"),
    ],
)
def test_a_certificate_is_replaced_for_a_reason(tmp_path, changed, reason):
    keep(tmp_path)
    before = (tmp_path / "h1.pem").read_bytes()
    assert reason in keep(tmp_path, may_write=False, **changed)["issued"]["h1"]
    assert (tmp_path / "h1.pem").read_bytes() == before
    keep(tmp_path, **changed)
    assert (tmp_path / "h1.pem").read_bytes() != before


def test_a_new_ca_replaces_the_certificates_of_the_old_one(tmp_path):
    keep(tmp_path / "one")
    keep(tmp_path / "two")
    shutil.copy(tmp_path / "one" / "h1.pem", tmp_path / "two" / "h1.pem")
    assert keep(tmp_path / "two")["issued"] == {"h1": "it was of another CA"}


def test_a_ca_without_its_key_is_told_and_nothing_is_made(tmp_path):
    keep(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(certificates.CertificateError, match="belong together"):
        keep(tmp_path)
    assert not (tmp_path / "ca.key").exists()


def test_a_given_certificate_is_inspected_before_it_is_used(tmp_path):
    keep(tmp_path)
    good = {"name": "h1", "names": ["127.0.0.1"], "file": str(tmp_path / "h1.pem")}
    assert keep("", hosts=[good])["hosts"]["h1"] == {"path": good["file"], "principal": BROKERS}
    for changed, words in (
        ({"file": "/nonexistent"}, "does not exist"),
        ({"names": ["kafka-a"]}, "is not for kafka-a"),
        ({"file": str(tmp_path / "ca.pem")}, "has no key"),
    ):
        with pytest.raises(certificates.CertificateError, match=words):
            keep("", hosts=[{**good, **changed}])


def test_an_expired_certificate_is_told_with_its_days(tmp_path, monkeypatch):
    keep(tmp_path)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=400)
    monkeypatch.setattr(
        "ansible_collections.landline.cluster.plugins.module_utils.certificate_files.now", lambda: later
    )
    with pytest.raises(certificates.CertificateError, match=r"is valid from .* until"):
        certificates.given(tmp_path / "h1.pem", ["h1"])


def test_a_broker_that_presents_another_certificate_is_told(tmp_path):
    keep(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "h1.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve():
            for _ in range(2):
                connection, _ = server.accept()
                context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        assert presents.wrong(presents.wanted_in(tmp_path / "h1.pem"), [address]) == []
        (told,) = presents.wrong(presents.wanted_in(tmp_path / "ca.pem"), [address])
        thread.join()
    assert told == f"{address} (another certificate)"
    (told,) = presents.wrong(presents.wanted_in(tmp_path / "ca.pem"), [address])
    assert "no answer" in told


def test_no_secret_is_in_the_environment_of_a_process_or_on_its_command_line():
    """A unit and its environment are given names of files, the port and the like."""
    found = [*ROLES.glob("*/templates/*.service.j2"), *ROLES.glob("*/templates/*env*.j2")]
    assert len(found) > 5
    for template in found:
        words = template.read_text().lower()
        assert not re.search(r"password|secret|token|landline_users|jaas|private.key", words), template


def test_no_task_loops_over_brokers_with_their_properties():
    """An item that fails is shown whole, whatever its label is, and properties may have passwords."""
    loops = {
        (path.name, loop)
        for path in (ROLES / "broker/tasks").glob("*.yml")
        for loop in re.findall(
            r"^ +loop: (.*broker_(?:all|to_configure)\b.*)$", path.read_text(), re.MULTILINE
        )
    }
    assert len(loops) > 5
    assert not {
        each for each in loops if not re.search(r"broker_without_properties|map\(attribute=", each[1])
    }
