"""`make support-bundle` on real hosts: what is in it, which secrets are not, and a host that is down.

The three-host cluster is the one that LANDLINE_LAB names (tools/test-cluster brings it up). Secrets of all kinds are
planted on its first host and in its ZooKeeper, and taken away again.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from broker.zookeeper.client import ZooKeeperStore
from lab import Lab
from tests.support.certificates import Authority
from tests.support.deploying import make
from tests.support.lab_cluster import LAB_ENV, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

MARK = "s3cret"
"""Every planted secret has this in it, except keys."""
ISSUED = Authority().issue("broker")
PEM = ISSUED.key_pem().decode()
CONTINUED = PEM.strip().replace("\n", "\\\n    ")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = rf"""# a broker that was here before
log.dirs=/var/lib/planted
ssl.keystore.location=/etc/landline/planted.p12
ssl.keystore.password={MARK}-equals
ssl.key.password : {MARK}-colon
ssl.truststore.password   {MARK}-blank
#ssl.key.password={MARK}-of-old
listener.name.a.ssl.key\u002e\u0070assword={MARK}-escaped
zookeeper.ssl.keystore.password={MARK}-\
    continued
landline.zookeeper.digest=super:{MARK}-digest
password.encoder.secret={MARK}-"quoted"=and:more
listener.name.b.plain.sasl.jaas.config={PLAIN} username="admin" password="{MARK} with blanks" user_bob='{MARK}-bob';
ssl.keystore.key={CONTINUED}
"""
JOURNAL = f"""started with the password {MARK}-equals
event=login password={MARK}-unknown1 user=alice
{{"sasl.jaas.config": "{PLAIN} user_eve=\\"{MARK}-unknown2\\";", "token": "{MARK}-unknown3"}}
Authorization: Bearer {MARK}-unknown4
https://admin:{MARK}-unknown5@example.org/
salt={MARK}6,stored_key={MARK}7==,server_key={MARK}8==,iterations=4096
the key is {base64.b64encode(f"{MARK}-colon".encode()).decode()} in base64
{PEM}
the last line
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_cluster():
        yield Lab(os.environ[LAB_ENV])


@pytest.fixture
def planted(lab: Lab) -> Iterator[Lab]:
    """The cluster, with secrets in files, in a journal and in ZooKeeper."""
    files = {
        "planted.properties": PROPERTIES,
        "planted.env": f"PLANTED_PASSWORD='{MARK}-environment'\nPLANTED_OPTS=-Dx.superDigest=a:{MARK}-flag\n",
        "planted-tokens": f"{MARK}-of-the-token-file\n",
        "planted.pem": PEM,
    }
    for name, text in files.items():
        lab.run("h1", f"umask 077; cat >/etc/landline/{name}", stdin=text)
    lab.run("h1", "cat >/root/planted", stdin=JOURNAL)
    lab.run(
        "h1", "systemd-run --quiet --unit=landline-planted --property=RemainAfterExit=yes cat /root/planted"
    )
    landline = "/opt/landline/current/venv/bin/landline credentials"
    user = "/etc/landline/broker-1.properties --user planted"
    lab.run("h1", f"echo {MARK}-of-scram | {landline} set {user}")
    store = ZooKeeperStore(f"{lab.hosts[0].address}:2181", 20_000)
    with closing(store):
        store.connect(20_000, threading.Event())
        config = {"ssl.key.password": f"{MARK}-encoded", "log.retention.ms": "1"}
        store.create("/config/brokers/99", json.dumps({"version": 1, "config": config}).encode())
        try:
            yield lab
        finally:
            store.delete("/config/brokers/99")
            lab.run("h1", f"{landline} delete {user}")
            lab.run("h1", "systemctl stop landline-planted; rm -f /root/planted /etc/landline/planted*")


def test_a_bundle_tells_all_but_the_secrets_and_names_the_host_that_is_down(
    planted: Lab, tmp_path: Path
) -> None:
    absent = planted.hosts[0].address.rpartition(".")[0] + ".99"
    extra = tmp_path / "absent.yml"
    extra.write_text(yaml.safe_dump({"brokers": {"hosts": {"h9": {"ansible_host": absent}}}}))
    arguments = f"ANSIBLE_ARGS=-i inventory/lab.py -i {extra} -T 5"
    done = make("support-bundle", f"LAB={planted.name}", arguments, "SINCE=-1h")
    (path,) = re.findall(r"(/\S+\.tar\.gz): \d+ KiB", done.stdout)
    try:
        bundle = files_in(Path(path))
    finally:
        Path(path).unlink()
    for host in planted.hosts:
        assert "landline-work" not in planted.run(host.name, "ls /var/lib").stdout, "nothing is left"

    manifest = json.loads(bundle["manifest.json"])
    states = {host: row["state"] for host, row in manifest["hosts"].items()}
    assert states == {"h1": "collected", "h2": "collected", "h3": "collected", "h9": "unreachable"}
    assert manifest["hosts"]["h9"]["why"]
    assert [row.get("errors", {}) for row in manifest["hosts"].values()] == [{}, {}, {}, {}]
    for number in (1, 2, 3):
        of = f"h{number}/broker-{number}"
        assert json.loads(bundle[f"{of}/status.txt"])["broker_id"] == number
        assert "kafka_server_" in bundle[f"{of}/metrics.txt"]
        assert "request_handler_pool.py" in bundle[f"{of}/stacks.txt"], bundle[f"{of}/stacks.txt"]
        assert json.loads(bundle[f"{of}/doctor.json"])["checks"]
        assert "broker_started" in bundle[f"h{number}/journal/landline-broker@{number}.service.log"]
        assert "broker.id=" in bundle[f"h{number}/config/etc/landline/broker-{number}.properties"]

    znodes = {row["path"]: row for row in map(json.loads, bundle["h1/znodes.jsonl"].splitlines())}
    assert znodes["/config/users/planted"]["value"] == "(masked)"
    assert znodes["/config/brokers/99"]["value"]["config"] == {
        "ssl.key.password": "(masked)",
        "log.retention.ms": "1",
    }
    assert znodes["/controller"]["ephemeral"]
    assert not [name for name in bundle if name.endswith("znodes.jsonl") and not name.startswith("h1/")]

    shown = bundle["h1/config/etc/landline/planted.properties"]
    assert "log.dirs=/var/lib/planted\nssl.keystore.location=/etc/landline/planted.p12\n" in shown
    assert shown.count("(masked)") == 10
    journal = bundle["h1/journal/landline-planted.service.log"]
    assert "user=alice" in journal
    assert "the last line" in journal
    assert_no_secret(bundle)


def assert_no_secret(bundle: dict[str, str]) -> None:
    lines = [line for line in PEM.splitlines() if not line.startswith("-----")]
    in_base64 = base64.b64encode(f"{MARK}-colon".encode()).decode()
    for name, text in bundle.items():
        for secret in (MARK, in_base64, *lines):
            where = text.find(secret)
            assert where < 0, f"{name}: …{text[max(where - 60, 0) : where + 60]}…"


def files_in(path: Path) -> dict[str, str]:
    """The texts of the bundle by their names below its directory."""
    assert path.stat().st_mode & 0o077 == 0, "only for its owner"
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    return found
