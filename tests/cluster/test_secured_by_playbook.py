"""A cluster is secured by its first deploy, with users, ACLs and quotas by lists. Of day two: it goes back under load,
and is secured again while it runs: TLS with given certificates, then logins with certificates of its own CA, which
another one replaces. Spark's jobs log in.
"""

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography import x509

from lab import Bind
from rig.topics import all_records
from rig.wait import wait_until
from tests.support import parquet_sink
from tests.support.certificates import DAY, Authority
from tests.support.deploying import changed, make
from tests.support.fabric import fab, fab_ok, submitted, to_its_end
from tests.support.lab_cluster import BROKER_PORT, LAB_ENV
from tests.support.labs import lab_session
from tests.support.numbered_load import NumberedLoad, numbers_in
from tools import http_access
from tools.client_file import ClientFile

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

SSL_PORT, SASL_SSL_PORT, BETWEEN_PORT, HTTP_PORT = 9093, 9094, 9095, 8092
TOPIC, PARTITIONS = "orders", 3
HOSTS = ("h1", "h2", "h3")
# Of a producer whose listener a deploy is to bring: librdkafka gives records up after five minutes by default.
PATIENT = {"message.timeout.ms": 1_200_000}
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
KNOWN = [{"name": "landline-services", "password": "{{ vaulted }}"}]
LISTED = {
    "users": [*KNOWN, {"name": "alice", "password": ALICE}],
    "landline_acls": [*SERVICES, BY_ALICE],
    "landline_quotas": [OF_ALICE],
}
TOPICS = [
    {
        "name": TOPIC,
        "partitions": PARTITIONS,
        "replication_factor": 3,
        "configs": {"min.insync.replicas": "2"},
    }
]
# The directory of the CA that the first deploy makes.
FIRST_CA = "first-ca"
PYSPARK = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The operator's: the CA, the settings, and what opens the vault."""
    return tmp_path_factory.mktemp("operator")


@pytest.fixture(scope="module")
def shared():
    """A directory that all hosts and this machine share, for Spark's jobs."""
    path = Path(f"/srv/landline/secured-{os.getpid()}")
    path.mkdir(parents=True)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def lab(shared):
    make("wheelhouse")  # for which the network in here is no use
    binds = [Bind(str(PYSPARK), "/opt/spark"), Bind(str(shared), str(shared), writable=True)]
    with lab_session("secured", hosts=3, binds=binds) as lab, lab.inside():
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

    def deploy(self, tags="broker", check=True, ca="ca", **variables):
        path = self._directory / "variables.yml"
        users = variables.pop("users", KNOWN)
        known = {
            "landline_certificates_dir": str(self._directory / ca),
            "landline_users": users,
            "broker_journal_shipper_enabled": True,
            **variables,
        }
        path.write_text(f"{yaml.safe_dump(known)}{in_vault(PASSWORD)}")
        arguments = f"--diff --tags {tags} -e @{path}"
        return make("deploy", f"LAB={self._lab.name}", f"ANSIBLE_ARGS={arguments}", check=check)

    def replace_ca(self, step):
        path = self._directory / "variables.yml"
        arguments = f"-e landline_ca_rollover={step} -e @{path}"
        return make("certificates", f"LAB={self._lab.name}", f"ANSIBLE_ARGS={arguments}")


class Given:
    """Certificates of the operator's own, by a CA below another."""

    def __init__(self, lab, directory):
        self.names = {host.name: [host.name, host.address] for host in lab.hosts}
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.above = Authority("Operator's CA")
        self.ca = Authority("Operator's CA for brokers", self.above)
        self.trusted = self.above.write_pem(directory / "trusted.pem")

    def issue(self, host, ca=None, **validity):
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "landline-broker")])
        issued = (ca or self.ca).issue(name, self.names[host], **validity)
        return issued.write_pem(self.directory / f"{host}.pem")

    @property
    def variables(self):
        return {
            "landline_certificate_file": f"{self.directory}/{{{{ inventory_hostname }}}}.pem",
            "landline_trusted_file": str(self.trusted),
        }


@pytest.fixture(scope="module")
def given(lab, directory):
    return Given(lab, directory / "given")


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


def as_reader(login):
    return {**login, "group.id": "landline.reader"}


def as_alice(lab):
    return {**services(lab), "sasl.username": "alice", "sasl.password": ALICE}


def why_not_written(settings):
    """The error of a record that a client writes; None when it is acknowledged."""
    found = []
    producer = Producer({**settings, "message.timeout.ms": 15000})
    producer.produce(TOPIC, "-1", partition=0, on_delivery=lambda error, _: found.append(error))
    producer.flush(30)
    return found[0] and found[0].code()


def of_one_line(output):
    return re.sub(r"\s+", " ", output)


def not_touched(lab):
    return on_each(lab, "ls -d /etc/landline /opt/landline 2>/dev/null || true") == dict.fromkeys(HOSTS, "")


def test_wrong_settings_are_refused_before_anything_is_touched(operator, lab):
    done = operator.deploy(check=False, landline_security="sasl_ssl", landline_certificates_dir="", users=[])
    assert done.returncode != 0
    for words in ("landline_certificates_dir is missing", "landline_users has no user landline-services"):
        assert words in of_one_line(done.stdout)
    assert not_touched(lab)


def test_wrong_certificates_are_refused_with_host_and_file_before_anything_is_touched(operator, lab, given):
    given.issue("h1", ca=Authority("Another CA"))
    file = given.issue("h2")
    file.write_bytes(given.ca.issue().key_pem() + file.read_bytes())  # the first key counts
    given.issue("h3", ends=-DAY / 2)
    done = operator.deploy(check=False, landline_security="tls", **given.variables)
    assert done.returncode != 0
    for host, words in (
        ("h1", f"is not trusted by {given.trusted}: unable to get local issuer certificate"),
        ("h2", "the key does not fit the first certificate"),
        ("h3", "is valid from"),
    ):
        assert re.search(f"{host}: {given.directory}/{host}.pem:? {words}", of_one_line(done.stdout))
    assert not_touched(lab)


def assert_no_secret(lab, done):
    for secret in (PASSWORD, ALICE, "PRIVATE KEY"):
        assert secret not in done.stdout
        assert on_each(
            lab, f"journalctl --grep={shlex.quote(secret)} --quiet --output=cat || true"
        ) == dict.fromkeys(HOSTS, "")
        seen = on_each(lab, f"ps axwwe | grep {shlex.quote(f'[{secret[0]}]{secret[1:]}')} || true")
        assert seen == dict.fromkeys(HOSTS, "")


def rolled(done):
    """How many brokers were restarted."""
    return done.stdout.count("Restart it] ***")


def test_a_cluster_is_secured_from_its_first_deploy(operator, lab):
    secured = {"landline_security": "sasl_ssl", **LISTED, **SECURE_HTTP, "landline_topics": TOPICS}
    done = operator.deploy(tags="zookeeper,broker", ca=FIRST_CA, **secured)
    assert "user alice: SCRAM-SHA-512 set" in done.stdout
    assert_no_secret(lab, done)
    login = services(lab)
    assert login["security.protocol"] == "SASL_SSL"
    ports = addresses(lab, SASL_SSL_PORT)
    with NumberedLoad(ports, TOPIC, PARTITIONS, first=7 * 10**6, settings=login) as load:
        wait_until(lambda: len(load.acked) > 100, 60)
    assert load.failed == []
    assert load.acked <= numbers_in(ports, TOPIC, PARTITIONS, as_reader(login))
    listening = on_each(lab, "ss --no-header --listening --numeric --tcp")
    assert not any(f":{port} " in each for port in (BROKER_PORT, SSL_PORT) for each in listening.values())


def test_the_services_of_the_hosts_work_and_nobody_else_reads_their_key_and_password(
    lab, directory, monkeypatch
):
    (directory / "http-token").write_text(f"{HTTP_TOKEN}\n")
    monkeypatch.setenv(http_access.CA_ENV, str(directory / FIRST_CA / "ca.pem"))
    metrics = f"https://{lab.hosts[0].address}:{HTTP_PORT}/metrics"
    assert http_access.get(metrics, 10)[0] == 401
    monkeypatch.setenv(http_access.TOKEN_ENV, str(directory / "http-token"))
    assert http_access.get(metrics, 10)[0] == 200
    make("smoke", f"LAB={lab.name}")  # all of it: here a cluster is least like the lab's
    assert f"SASL_SSL://{lab.hosts[0].address}:{SASL_SSL_PORT}" in make("status", f"LAB={lab.name}").stdout
    names = "/etc/landline/broker.pem /etc/landline/client.properties /etc/landline/http-tokens"
    modes = on_each(lab, f"stat --format='%a %U:%G' {names}")
    assert set(modes.values()) == {"640 root:landline\n" * 3}


def test_users_acls_and_quotas_come_and_go_by_lists(operator, lab):
    secured = {"landline_security": "sasl_ssl", "tags": "broker_access", "ca": FIRST_CA}
    assert wait_until(lambda: why_not_written(as_alice(lab)) is None, 60)
    no_acl = {**LISTED, "landline_acls": [*SERVICES, {**BY_ALICE, "state": "absent"}]}
    once = operator.deploy(**secured, **no_acl).stdout
    assert "landline_access_delete too" in once
    assert why_not_written(as_alice(lab)) is None
    secured["landline_access_delete"] = "alice"
    operator.deploy(**secured, **no_acl)
    wait_until(lambda: why_not_written(as_alice(lab)) == KafkaError.TOPIC_AUTHORIZATION_FAILED, 60)
    gone = {
        "users": [*KNOWN, {"name": "alice", "state": "absent"}],
        "landline_acls": no_acl["landline_acls"],
        "landline_quotas": [{**OF_ALICE, "state": "absent"}],
    }
    assert "quota users/alice: producer_byte_rate removed" in operator.deploy(**secured, **gone).stdout
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT"):
        AdminClient(as_alice(lab)).list_topics(timeout=10)
    assert sum(changed(operator.deploy(**secured, **gone).stdout).values()) == 0


@pytest.mark.day_two
def test_a_secured_cluster_goes_back_under_load(operator, lab):
    plain = addresses(lab, BROKER_PORT)
    with NumberedLoad(plain, TOPIC, PARTITIONS, first=6 * 10**6) as load:
        done = operator.deploy(ca=FIRST_CA)
        wait_until(lambda: len(load.acked) > 100, 60)
    assert rolled(done) == 3 * len(HOSTS)
    assert load.failed == []
    found = numbers_in(plain, TOPIC, PARTITIONS)
    assert load.acked <= found
    assert 7 * 10**6 in found, "what was written before"
    assert on_each(lab, "ls /etc/landline/http-tokens 2>/dev/null || true") == dict.fromkeys(HOSTS, "")
    assert set(changed(operator.deploy().stdout).values()) == {0}
    make("smoke", f"LAB={lab.name}", f"TEST_ARGS={SMOKE}")


@pytest.mark.day_two
def test_a_running_cluster_gets_tls_under_load_with_given_certificates(operator, lab, given):
    """A client of the listener that comes is served from the moment that the first broker has it."""
    operator.deploy(tags="zookeeper,broker,spark")
    plain, ssl_ = addresses(lab, BROKER_PORT), addresses(lab, SSL_PORT)
    for host in HOSTS:
        given.issue(host)
    trusting = {"security.protocol": "SSL", "ssl.ca.pem": given.above.pem.decode()}
    with (
        NumberedLoad(plain, TOPIC, PARTITIONS) as before,
        # Its first records wait for as long as the deploy takes to the first broker.
        NumberedLoad(ssl_, TOPIC, PARTITIONS, first=10**6, settings={**trusting, **PATIENT}) as after,
    ):
        wait_until(lambda: len(before.acked) > 100, 60)
        done = operator.deploy(landline_security="tls", landline_security_also=["none"], **given.variables)
        wait_until(lambda: len(after.acked) > 100, 60)
    assert rolled(done) == 2 * len(HOSTS)
    assert before.failed == after.failed == []
    # The first one was compared with the others while they went over.
    assert re.search(
        r"landline-broker@\d\.service was watched for \d+ s beside 2 others", of_one_line(done.stdout)
    )
    login = services(lab)
    assert login == {**trusting, "bootstrap.servers": ssl_, "ssl.ca.pem": login["ssl.ca.pem"]}
    assert before.acked | after.acked <= numbers_in(ssl_, TOPIC, PARTITIONS, login)
    assert_no_secret(lab, done)


@pytest.mark.day_two
def test_clients_move_from_tls_to_logins_under_load(operator, lab, given, directory):
    """The CA's directory gets the CA that the brokers trust already: so their certificates change while they run."""
    (directory / "ca").mkdir()
    (directory / "ca" / "ca.key").write_bytes(given.above.issued.key_pem())
    given.above.write_pem(directory / "ca" / "ca.pem")
    secured = {"landline_security": "sasl_ssl", **LISTED, **SECURE_HTTP}
    with NumberedLoad(
        addresses(lab, SSL_PORT), TOPIC, PARTITIONS, first=2 * 10**6, settings=services(lab)
    ) as by_tls:
        done = operator.deploy(**secured, landline_security_also=["tls"])
    assert rolled(done) == len(HOSTS)
    for words in (
        "user alice: SCRAM-SHA-512 set",
        "Allow Write from * for User:alice added",
        "set to 1048576",
    ):
        assert words in done.stdout
    assert_no_secret(lab, done)
    login = services(lab)
    assert login["security.protocol"] == "SASL_SSL"
    ports = addresses(lab, SASL_SSL_PORT)
    with NumberedLoad(ports, TOPIC, PARTITIONS, first=3 * 10**6, settings=login) as by_login:
        done = operator.deploy(**secured)
        wait_until(lambda: len(by_login.acked) > 100, 60)
    assert rolled(done) == len(HOSTS)
    assert by_tls.failed == by_login.failed == []
    assert by_tls.acked | by_login.acked <= numbers_in(ports, TOPIC, PARTITIONS, as_reader(login))
    listening = on_each(lab, "ss --no-header --listening --numeric --tcp")
    gone = (BROKER_PORT, SSL_PORT)
    assert all(f":{SASL_SSL_PORT} " in each for each in listening.values())
    assert not any(f":{port} " in each for port in gone for each in listening.values())
    assert set(changed(operator.deploy(**secured).stdout).values()) == {0}


@pytest.mark.day_two
def test_a_job_of_spark_reads_and_writes_with_the_login_of_the_services(lab, shared, tmp_path, monkeypatch):
    monkeypatch.setenv(LAB_ENV, lab.name)
    windows = "landline.journal.windows"
    arguments = [
        *("--topics", "landline.journal", "--windows-topic", windows, "--available-now"),
        *("--output", f"file://{shared}/records", "--checkpoint", f"file://{shared}/checkpoint"),
        *("--window", "10 seconds", "--watermark", "10 seconds"),
    ]
    fab_ok("start")
    try:
        to_its_end(submitted("journal_stream", arguments, tmp_path / "job.log", cores=1))
    finally:
        fab("stop")
    login = services(lab)
    written = all_records(login["bootstrap.servers"], windows, login)
    assert {json.loads(each.value())["host"] for each in written} == set(HOSTS)
    assert {row["host"] for row in parquet_sink.rows(shared / "records", "host")} == set(HOSTS)


def presented(lab):
    return {
        ssl.get_server_certificate((host.address, port), timeout=10)
        for host in lab.hosts
        for port in (SASL_SSL_PORT, BETWEEN_PORT, HTTP_PORT)
    }


@pytest.mark.day_two
def test_another_ca_replaces_the_cas_without_a_restart_under_load(operator, lab):
    before, running, old = presented(lab), pids(lab), services(lab)
    with NumberedLoad(old["bootstrap.servers"], TOPIC, PARTITIONS, first=4 * 10**6, settings=old) as by_old:
        operator.replace_ca("trust")
        assert len(presented(lab) - before) == len(HOSTS)
    assert set(changed(operator.replace_ca("trust").stdout).values()) == {0}
    both = services(lab)
    with NumberedLoad(old["bootstrap.servers"], TOPIC, PARTITIONS, first=5 * 10**6, settings=both) as by_both:
        operator.replace_ca("issue")
        operator.replace_ca("drop")
    assert pids(lab) == running
    assert by_old.failed == by_both.failed == []
    new = services(lab)
    assert both["ssl.ca.pem"].strip().endswith(new["ssl.ca.pem"].strip())
    assert both["ssl.ca.pem"].strip().startswith(old["ssl.ca.pem"].strip())
    assert old["ssl.ca.pem"] != new["ssl.ca.pem"]
    found = numbers_in(new["bootstrap.servers"], TOPIC, PARTITIONS, as_reader(new))
    assert by_old.acked | by_both.acked <= found
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_ALL_BROKERS_DOWN|_TIMED_OUT|_SSL"):
        AdminClient(old).list_topics(timeout=10)
