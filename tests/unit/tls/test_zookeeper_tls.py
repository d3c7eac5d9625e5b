"""TLS to ZooKeeper: what its stores may be, and that a connection has the files of its time."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.config.problems import ConfigError
from broker.server.zookeeper_access import secure_from
from broker.tls.zookeeper import ZooKeeperTls
from broker.zookeeper.connect_string import Secure
from tests.support.certificates import DAY, Authority

AUTHORITY = Authority()


def secure(directory: Path, **stores: Any) -> Secure:
    texts = {"zookeeper.ssl.client.enable": "true"}
    texts |= {f"zookeeper.ssl.{name.replace('_', '.')}": str(value) for name, value in stores.items()}
    texts.setdefault("zookeeper.ssl.truststore.location", str(AUTHORITY.write_pem(directory / "ca.pem")))
    made = secure_from(texts)
    assert made is not None
    return made


def refused(directory: Path, **stores: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        secure(directory, **stores)
    return str(caught.value)


def clients_name(made: Secure, directory: Path) -> str:
    """The common name of the certificate that a server sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(AUTHORITY.issue().write_pem(directory / "server.pem"))
    context.load_verify_locations(directory / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    theirs.settimeout(10)
    names: list[Any] = []

    def serve() -> None:
        with context.wrap_socket(theirs, server_side=True) as end:
            names.append(dict(pair for (pair,) in (end.getpeercert() or {})["subject"]))  # type: ignore[misc]

    server = threading.Thread(target=serve)
    server.start()
    with made(ours, "localhost"):
        server.join(10)
    return str(names[0]["commonName"])


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "client.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002") + bytes(64))
    said = refused(tmp_path, keystore_location=path)
    assert f"keytool -importkeystore -srckeystore {path}" in said
    assert "zookeeper.ssl.keystore.type=PKCS12" in said


def test_messages_name_zookeepers_keys(tmp_path: Path) -> None:
    path = AUTHORITY.issue("c", ()).write_pem(tmp_path / "c.pem", "right")
    assert "zookeeper.ssl.keystore.password" in refused(
        tmp_path, keystore_location=path, keystore_password="wrong"
    )
    assert "zookeeper.ssl.truststore.location" in refused(tmp_path, truststore_location=tmp_path / "none.pem")
    late = AUTHORITY.issue("c", (), begins=-9 * DAY, ends=-DAY).write_pem(tmp_path / "late.pem")
    assert "expired" in refused(tmp_path, keystore_location=late)


def test_stores_are_pem_or_pkcs12_by_the_name_of_their_file(tmp_path: Path) -> None:
    own = AUTHORITY.issue("pem", ()).write_pem(tmp_path / "c.pem", "secret")
    assert (
        clients_name(secure(tmp_path, keystore_location=own, keystore_password="secret"), tmp_path) == "pem"
    )
    own = AUTHORITY.issue("p12", ()).write_p12(tmp_path / "c.p12", "secret")
    newer = secure(tmp_path, keystore_location=own, keystore_password="secret", enabled_protocols="TLSv1.3")
    assert clients_name(newer, tmp_path) == "p12"


def test_each_connection_has_the_files_of_its_time_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    own = AUTHORITY.issue("before", ()).write_pem(tmp_path / "c.pem")
    made = secure(tmp_path, keystore_location=own)
    assert isinstance(made, ZooKeeperTls)
    assert clients_name(made, tmp_path) == "before"
    AUTHORITY.issue("after", ()).write_pem(own)
    assert clients_name(made, tmp_path) == "after"
    own.write_text("garbage")
    assert clients_name(made, tmp_path) == "after"
