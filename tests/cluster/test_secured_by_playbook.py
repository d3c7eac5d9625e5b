"""A running cluster is secured by the playbook and back, under load; users, ACLs, quotas and certificates by lists."""

import re
import shlex
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from rig.topics import create_topic
from rig.wait import wait_until
from tests.support.deploying import changed, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.numbered_load import NumberedLoad, numbers_in
from tools import http_access
from tools.client_file import ClientFile

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

SASL_SSL_PORT, BETWEEN_PORT, HTTP_PORT = 9094, 9095, 8092
TOPIC, PARTITIONS = "orders", 3
HOSTS = ("h1", "h2", "h3")
PASSWORD = "the-password-of-the-services"
ALICE = "the-password-of-alice"
HTTP_TOKEN = f"{PASSWORD}.http"  # so that a search for the one finds the other
SECURE_HTTP = {"landline_http_tls": True, "landline_http_token": "{{ vaulted }}.http"}
SMOKE = "-k 'record or arrive or ports or tcp'"
SERVICES = [
    {"principal": "User:landline-services", "resource": "topic", "name": TOPIC, "operations": ["All"]}
]
BY_ALICE = {
    "principal": "User:alice",
    "resource": "topic",
    "name": TOPIC,
    "operations": ["Write", "Describe"],
}
OF_ALICE = {"user": "alice", "values": {"producer_byte_rate": 1048576}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The operator's: the CA, the settings, and what opens the vault."""
    return tmp_path_factory.mktemp("operator")


@pytest.fixture(scope="module")
def lab():
    make("wheelhouse")  # for which the network in here is no use
    with lab_session("secured", hosts=3) as lab, lab.inside():
        yield lab


@pytest.fixture(autouse=True)
def _vault(directory, monkeypatch):
    (directory / "vault-password").write_text("of the vault\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(directory / "vault-password"))


def in_vault(text):
    """The value as it stands in a file of variables, by the command of docs/security.md."""
    command = [
        str(Path(sys.executable).with_name("ansible-vault")),
        "encrypt_string",
        "--stdin-name",
        "vaulted",
    ]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    assert text not in done.stdout
    return done.stdout


class Operator:
    """Deploys the lab with a file of variables."""

    def __init__(self, lab, directory):
        self._lab = lab
        self._directory = directory

    def deploy(self, tags="broker", check=True, **variables):
        path = self._directory / "variables.yml"
        users = variables.pop("users", [{"name": "landline-services", "password": "{{ vaulted }}"}])
        known = {
            "landline_certificates_dir": str(self._directory / "ca"),
            "landline_users": users,
            "broker_journal_shipper_enabled": True,
            **variables,
        }
        path.write_text(f"{yaml.safe_dump(known)}{in_vault(PASSWORD)}")
        arguments = f"--diff --tags {tags} -e @{path}"
        return make("deploy", f"LAB={self._lab.name}", f"ANSIBLE_ARGS={arguments}", check=check)

    def renew_certificates(self):
        path = self._directory / "variables.yml"
        make("certificates", f"LAB={self._lab.name}", f"ANSIBLE_ARGS=-e @{path}")


@pytest.fixture
def operator(lab, directory):
    return Operator(lab, directory)


def addresses(lab, port):
    return ",".join(f"{host.address}:{port}" for host in lab.hosts)


def on_each(lab, command):
    return {name: lab.run(name, command).stdout for name in HOSTS}


def pids(lab):
    return on_each(lab, "systemctl show --property=MainPID --value 'landline-broker@*'")


def services(lab):
    """How the clients of the hosts log in, by the file that the role wrote."""
    file = lab.run("h1", "cat /etc/landline/client.properties").stdout
    return ClientFile.parse(file).librdkafka()


def as_alice(lab):
    return {**services(lab), "sasl.username": "alice", "sasl.password": ALICE}


def why_not_written(settings):
    """The error of a record that a client writes; None when it is acknowledged."""
    found = []
    producer = Producer({**settings, "message.timeout.ms": 15000})
    producer.produce(TOPIC, "-1", partition=0, on_delivery=lambda error, _: found.append(error))
    producer.flush(30)
    return found[0] and found[0].code()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"landline_security": "ssl"}, "landline_security is 'ssl', which is none of none, tls, sasl_ssl"),
        (
            {"landline_security": "sasl_ssl", "landline_certificates_dir": ""},
            "landline_certificates_dir is missing",
        ),
        ({"landline_security": "sasl_ssl", "users": []}, "landline_users has no user landline-services"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_touched(operator, lab, wrong, words):
    done = operator.deploy(check=False, **wrong)
    assert done.returncode != 0
    assert words in re.sub(r"\s+", " ", done.stdout)
    assert on_each(lab, "ls -d /etc/landline /opt/landline 2>/dev/null || true") == dict.fromkeys(HOSTS, "")


def test_a_running_cluster_is_secured_under_load_and_its_clients_move(operator, lab):
    operator.deploy(tags="zookeeper,broker")
    plain = addresses(lab, BROKER_PORT)
    create_topic(plain, TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    secured = {"landline_security": "sasl_ssl", "landline_acls": SERVICES, **SECURE_HTTP}
    with NumberedLoad(plain, TOPIC, PARTITIONS) as before:
        wait_until(lambda: len(before.acked) > 100, 60)
        done = operator.deploy(**secured, landline_security_also=["none"])
    assert done.stdout.count("Restart it] ***") == 2 * len(HOSTS)
    for secret in (PASSWORD, "PRIVATE KEY"):
        assert secret not in done.stdout
        assert on_each(
            lab, f"journalctl --grep={shlex.quote(secret)} --quiet --output=cat || true"
        ) == dict.fromkeys(HOSTS, "")
        seen = on_each(lab, f"ps axwwe | grep {shlex.quote(f'[{secret[0]}]{secret[1:]}')} || true")
        assert seen == dict.fromkeys(HOSTS, "")
    login = services(lab)
    assert login["security.protocol"] == "SASL_SSL"
    with NumberedLoad(addresses(lab, SASL_SSL_PORT), TOPIC, PARTITIONS, first=10**6, settings=login) as after:
        wait_until(lambda: len(after.acked) > 100, 60)
        done = operator.deploy(**secured)
    assert done.stdout.count("Restart it] ***") == len(HOSTS)
    assert before.failed == after.failed == []
    reader = {**login, "group.id": "landline.reader"}
    assert before.acked | after.acked <= numbers_in(login["bootstrap.servers"], TOPIC, PARTITIONS, reader)
    listening = on_each(lab, "ss --no-header --listening --numeric --tcp")
    assert all(f":{SASL_SSL_PORT} " in each and f":{BROKER_PORT} " not in each for each in listening.values())
    assert set(changed(operator.deploy(**secured).stdout).values()) == {0}


def test_the_services_of_the_hosts_work_and_nobody_else_reads_their_key_and_password(
    lab, directory, monkeypatch
):
    (directory / "http-token").write_text(f"{HTTP_TOKEN}\n")
    monkeypatch.setenv(http_access.CA_ENV, str(directory / "ca" / "ca.pem"))
    metrics = f"https://{lab.hosts[0].address}:{HTTP_PORT}/metrics"
    assert http_access.get(metrics, 10)[0] == 401
    monkeypatch.setenv(http_access.TOKEN_ENV, str(directory / "http-token"))
    assert http_access.get(metrics, 10)[0] == 200
    make("smoke", f"LAB={lab.name}", f"TEST_ARGS={SMOKE}")
    assert f"SASL_SSL://{lab.hosts[0].address}:{SASL_SSL_PORT}" in make("status", f"LAB={lab.name}").stdout
    names = "/etc/landline/broker.pem /etc/landline/client.properties /etc/landline/http-tokens"
    modes = on_each(lab, f"stat --format='%a %U:%G' {names}")
    assert set(modes.values()) == {"640 root:landline\n" * 3}


def test_certificates_are_renewed_without_a_restart(operator, lab):
    def presented():
        return {
            ssl.get_server_certificate((host.address, port), timeout=10)
            for host in lab.hosts
            for port in (SASL_SSL_PORT, BETWEEN_PORT, HTTP_PORT)
        }

    before, running = presented(), pids(lab)
    operator.renew_certificates()
    assert len(before) == len(presented()) == len(HOSTS)
    assert not presented() & before
    assert pids(lab) == running


def test_users_acls_and_quotas_come_and_go_by_lists(operator, lab):
    secured = {"landline_security": "sasl_ssl", "tags": "broker_access"}
    known = [{"name": "landline-services", "password": "{{ vaulted }}"}]
    alice = {"name": "alice", "password": ALICE}
    there = {"users": [*known, alice], "landline_acls": [*SERVICES, BY_ALICE], "landline_quotas": [OF_ALICE]}
    done = operator.deploy(**secured, **there)
    assert sum(changed(done.stdout).values()) == 1
    assert ALICE not in done.stdout
    for words in (
        "user alice: SCRAM-SHA-512 set",
        "Allow Write from * for User:alice added",
        "set to 1048576",
    ):
        assert words in done.stdout
    assert wait_until(lambda: why_not_written(as_alice(lab)) is None, 60)
    assert sum(changed(operator.deploy(**secured, **there).stdout).values()) == 0

    no_acl = {**there, "landline_acls": [*SERVICES, {**BY_ALICE, "state": "absent"}]}
    operator.deploy(**secured, **no_acl)
    wait_until(lambda: why_not_written(as_alice(lab)) == KafkaError.TOPIC_AUTHORIZATION_FAILED, 60)
    gone = {
        "users": [*known, {"name": "alice", "state": "absent"}],
        "landline_acls": no_acl["landline_acls"],
        "landline_quotas": [{**OF_ALICE, "state": "absent"}],
    }
    assert "quota users/alice: producer_byte_rate removed" in operator.deploy(**secured, **gone).stdout
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT"):
        AdminClient(as_alice(lab)).list_topics(timeout=10)
    assert sum(changed(operator.deploy(**secured, **gone).stdout).values()) == 0


def test_a_secured_cluster_goes_back_under_load(operator, lab):
    """A client of the listener that comes is served from the moment that the first broker has it."""
    plain = addresses(lab, BROKER_PORT)
    with NumberedLoad(plain, TOPIC, PARTITIONS, first=2 * 10**6) as load:
        done = operator.deploy()
        wait_until(lambda: len(load.acked) > 100, 60)
    assert done.stdout.count("Restart it] ***") == 3 * len(HOSTS)
    assert load.failed == []
    found = numbers_in(plain, TOPIC, PARTITIONS)
    assert load.acked <= found
    assert {0, 10**6} < found  # and what was written before
    assert on_each(lab, "ls /etc/landline/http-tokens 2>/dev/null || true") == dict.fromkeys(HOSTS, "")
    assert set(changed(operator.deploy().stdout).values()) == {0}
    make("smoke", f"LAB={lab.name}", f"TEST_ARGS={SMOKE}")
