"""Secrets are masked by the names beside them and by their values, and the rest of a text stays as it is."""

import gzip
import io
import json
import random
import tarfile

import pytest

from broker.config.keys import BROKER_KEYS
from tests.support.deploy_code import load

masking = load("plugins/module_utils/masking.py")
bundle = load("plugins/modules/support_bundle.py")
support = load("plugins/filter/support.py")

PEM = (
    "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----"
)


def test_every_sensitive_config_of_a_broker_has_a_secrets_name():
    sensitive = {name for name, key in BROKER_KEYS.items() if key.sensitive}
    assert {name for name in sensitive if not masking.is_secret(name)} == set()


def test_the_names_of_files_durations_and_algorithms_are_shown():
    for name in (
        "ssl.keystore.location",
        "landline.http.token.file",
        "delegation.token.expiry.time.ms",
        "password.encoder.cipher.algorithm",
        "ssl.client.auth",
        "log.dirs",
        "zookeeper.connect",
    ):
        assert not masking.is_secret(name), name


@pytest.mark.parametrize(
    "line",
    [
        "ssl.key.password=s3cret",
        "ssl.key.password = s3cret",
        "ssl.key.password: s3cret",
        "ssl.key.password   s3cret and more",
        "  ssl.key.password=s3cret",
        "# ssl.key.password=s3cret",
        "!ssl.key.password=s3cret",
        r"ssl.key\u002epassword=s3cret",
        r"ssl.key.pass\word=s3cret",
        "ssl.key.password=\\\n   s3cret",
        "ssl.key.pass\\\n   word=s3cret",
        "SSL_KEY_PASSWORD='s3cret'",
        f"ssl.keystore.key={PEM}".replace("\n", "\\\n  "),
    ],
)
def test_a_secret_key_of_a_properties_file_is_masked_in_any_spelling(line):
    shown = masking.masked_properties(f"a=1\n{line}\nb=2\n")
    assert "s3cret" not in shown
    assert "MIGHAg" not in shown
    assert shown.startswith("a=1\n")
    assert shown.endswith("(masked)\nb=2\n")


@pytest.mark.parametrize(
    "text",
    [
        "password=s3cret",
        'event=login password="s3cret with \\" blanks" user=alice',
        "Environment=PLANTED_PASSWORD=s3cret",
        "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:s3cret",
        '{"ssl.key.password": "s3cret"}',
        '{"a": "required password=\\"s3cret\\" user_bob=\\"s3cret\\";"}',
        "required username='admin' password='s3cret';",
        'required user_alice="s3cret" user_bob = s3cret;',
        "salt=s3cret,stored_key=s3cret==,server_key=s3cret==,iterations=4096",
        "Authorization: Bearer s3cret.with~dots",
        "authorization: basic s3crets3cret==",
        "https://admin:s3cret@example.org/x",
        "jdbc:x?user=a&password=s3cret&x=1",
        PEM.replace("MIGH", "s3cret"),
        "-----BEGIN RSA PRIVATE KEY-----\ns3cret" + "A" * 60 + "\n",
        "2026-11-26 h1: -----BEGIN EC PRIVATE KEY-----\n2026-11-26 h1: s3cret" + "A" * 60 + "\nnext",
    ],
)
def test_a_secret_beside_its_name_is_masked_in_any_text(text):
    assert "s3cret" not in masking.Masker()(text)


@pytest.mark.parametrize(
    "secret", ["pa=ss:wo#rd", 'with "quotes" and \\', "ümläut-and-more", "p&q r/s", "abc"]
)
def test_a_known_secret_is_masked_wherever_it_is(secret):
    masker = masking.Masker([secret, "another"])
    for spelling in masking.spellings_of(secret):
        assert masker(f"a line with {spelling} in it") == "a line with (masked) in it"


def test_a_short_secret_masks_no_part_of_a_word():
    assert masking.Masker(["adm"])("administration by adm") == "administration by (masked)"


def test_what_is_no_secret_stays():
    text = (
        "broker_started id=1 listeners=PLAINTEXT://h1:9092 version=0.2.0\n"
        "PEM: -----BEGIN PRIVATE KEY----- is expected\nthe next line\n"
        '{"path": "/brokers/ids/1", "value": {"endpoints": ["PLAINTEXT://h1:9092"]}}\n'
    )
    shown = masking.Masker(["hidden-elsewhere"])(text)
    assert shown == text.replace("-----BEGIN PRIVATE KEY----- is expected", "(masked)")


def test_masked_json_is_json():
    row = {"ssl.key.password": "x", "token": None, "jaas": 'a="b"', "n": 1}
    shown = json.loads(masking.Masker()(json.dumps(row)))
    assert shown == {"ssl.key.password": "(masked)", "token": None, "jaas": "(masked)", "n": 1}


@pytest.mark.timeout(60)
def test_a_long_line_takes_no_long_time():
    masking.Masker(["secret-value"])("A" * 200_000 + "a-" * 50_000 + "a=" * 100_000)


def test_the_secrets_of_a_file_are_found_with_the_options_of_jaas():
    found = set(
        masking.secrets_of_properties(
            'sasl.jaas.config=x.PlainLoginModule required username="u" password="one" user_bob=\'two\';\n'
            "landline.zookeeper.digest=super:three\n#ssl.key.password=four\nlog.dirs=/d\n"
        )
    )
    assert {"one", "two", "three", "four"} <= found
    assert not found & {"u", "/d"}


def test_a_hosts_archive_cannot_write_elsewhere(tmp_path):
    archive, dest = tmp_path / "h1.tar.gz", tmp_path / "bundle.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../../up", "/absolute", "good/file"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    hosts = {
        "h1": {"state": "collected", "archive": str(archive), "errors": {"a": "b"}},
        "h2": {"state": "unreachable", "why": "no route"},
    }
    manifest = bundle.bundled(dest, hosts, {"since": "-1h"})
    with tarfile.open(dest) as tar:
        assert {member.name for member in tar} == {
            "bundle/h1/up",
            "bundle/h1/absolute",
            "bundle/h1/good/file",
            "bundle/manifest.json",
        }
    assert manifest["hosts"]["h2"] == {"state": "unreachable", "why": "no route"}
    assert manifest["hosts"]["h1"]["errors"] == {"a": "b"}
    assert dest.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda good: good[: len(good) // 2], "end-of-stream"),
        (lambda good: b"", "empty file"),
        (lambda good: b"hello", "not a gzip file"),
        (
            lambda good: gzip.compress(_head_of("bomb", bundle.MOST_BYTES + 1)),
            "its file bomb has 67108865 bytes",
        ),
    ],
)
def test_a_hosts_bad_archive_costs_only_its_own_files(tmp_path, content, words):
    good, bad, dest = (tmp_path / f"{name}.tar.gz" for name in ("good", "bad", "bundle"))
    with tarfile.open(good, "w:gz") as tar:
        for number in range(2):
            info = tarfile.TarInfo(f"file{number}")
            info.size = 5_000
            tar.addfile(info, io.BytesIO(random.randbytes(5_000)))
    bad.write_bytes(content(good.read_bytes()))
    hosts = {
        "h1": {"state": "collected", "archive": str(bad)},
        "h2": {"state": "collected", "archive": str(good)},
    }
    manifest = bundle.bundled(dest, hosts, {})
    assert manifest["hosts"]["h1"]["state"] == "failed"
    assert words in manifest["hosts"]["h1"]["why"]
    assert manifest["hosts"]["h2"] == {"state": "collected", "files": {"file0": 5_000, "file1": 5_000}}
    with tarfile.open(dest) as tar:
        assert {"bundle/h2/file0", "bundle/h2/file1", "bundle/manifest.json"} <= {each.name for each in tar}


def _head_of(name, size):
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf()


def test_what_came_of_a_host_is_told_by_how_far_it_came():
    reached = {"ping": "pong"}
    hosts = [
        {
            "inventory_hostname": "h1",
            "support_reached": reached,
            "support_collected": {"path": "/p", "errors": {}},
            "support_fetched": {"checksum": "1"},
        },
        {"inventory_hostname": "h2", "support_reached": {"unreachable": True, "msg": "no\nroute"}},
        {
            "inventory_hostname": "h3",
            "support_reached": reached,
            "support_collected": {"failed": True, "msg": "disk full"},
        },
        {"inventory_hostname": "h4", "support_reached": {"failed": True, "msg": "no python"}},
    ]
    assert support.support_hosts(hosts, "/place") == {
        "h1": {"state": "collected", "archive": "/place/h1.tar.gz", "errors": {}},
        "h2": {"state": "unreachable", "why": "no route"},
        "h3": {"state": "failed", "why": "disk full"},
        "h4": {"state": "failed", "why": "no python"},
    }
