"""A client's settings from the brokers' hosts: as Spark's connector, librdkafka and a submitted job have them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import fabfile
from pipeline.client_config import client_settings
from tools.client_file import ClientFile, fetch
from tools.inventory import Inventory

TEXT = """# Ansible managed
bootstrap.servers=a:9094,b:9094
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="svc" password="p\\\\"w=1";
sasl.mechanism=SCRAM-SHA-512
security.protocol=SASL_SSL
ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----
ssl.truststore.type=PEM
"""
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


def test_sparks_connector_gets_the_values_themselves_so_that_executors_need_no_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(TEXT)
    found = client_settings(str(path))
    assert found["kafka.ssl.truststore.certificates"] == PEM
    assert found["kafka.sasl.jaas.config"].endswith('password="p\\"w=1";')
    assert "kafka.bootstrap.servers" not in found
    assert client_settings(None) == {}


def test_librdkafka_gets_them_by_its_own_names() -> None:
    assert ClientFile.parse(TEXT).librdkafka() == {
        "bootstrap.servers": "a:9094,b:9094",
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": PEM,
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "svc",
        "sasl.password": 'p"w=1',
    }
    assert 'p"w' not in repr(ClientFile.parse(TEXT))


def test_a_submitted_job_gets_a_file_that_only_its_user_reads_and_that_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing: dict[str, Any] = {"_meta": {"hostvars": {}}}
    monkeypatch.delenv("LANDLINE_CLIENT_CONFIG", raising=False)
    monkeypatch.setattr(fabfile, "fetch", lambda _inventory: TEXT)
    with fabfile._login(listing) as known:
        path = Path(known["LANDLINE_CLIENT_CONFIG"])
        assert known["LANDLINE_BOOTSTRAP_SERVERS"] == "a:9094,b:9094"
        assert path.read_text() == TEXT
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_uid == os.getuid()
    assert not path.exists()
    monkeypatch.setattr(fabfile, "fetch", lambda _inventory: "security.protocol=PLAINTEXT\n")
    with fabfile._login(listing) as known:
        assert known == {}


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        ({"a": 0, "b": 0}, "of=a\n"),
        ({"a": 255, "b": 0}, "of=b\n"),
        ({"a": 1, "b": 0}, ""),
        ({"a": 255, "b": 255}, ""),
    ],
)
def test_the_settings_are_of_the_first_host_that_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: dict[str, int], text: str
) -> None:
    """Without them a secured cluster would be taken for one without security."""
    ssh = tmp_path / "ssh"
    cases = "".join(f"{host}) echo of={host}; exit {code};; " for host, code in codes.items())
    ssh.write_text(f'#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\ncase $2 in {cases}esac\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    listing = {"brokers": {"hosts": list(codes)}, "_meta": {"hostvars": {}}}
    assert fetch(Inventory(listing)) == text
