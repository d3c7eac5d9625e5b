"""Brokers that log in to ZooKeeper by SASL DIGEST-MD5: who owns the znodes, and how a start ends that ZooKeeper
does not let in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.zookeeper_access import access_from
from broker.zookeeper.access import ZooKeeperAccess
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.store import StoreError
from rig.brokers import write_properties
from rig.landline_broker import LandlineBroker
from rig.wait import wait_until
from rig.zookeeper import DIGEST_LOGIN, ZooKeeperServer
from tests.integration.test_start_refusals import one_line, run_to_end
from tests.integration.test_zookeeper_security import connected

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
USER, PASSWORD = "kafka", "the-right-password"
JAAS = "landline.zookeeper.sasl.jaas.config"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper whose JAAS file has one user."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper-sasl"), users={USER: PASSWORD}) as server:
        yield server


def login(password: str) -> dict[str, str]:
    return {
        JAAS: f'{DIGEST_LOGIN} required username="{USER}" password="{password}";',
        "zookeeper.set.acl": "true",
    }


def test_znodes_are_the_sasl_users_and_no_stranger_may_change_them(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    connect, config = server.chroot("sasl"), login(PASSWORD)
    with LandlineBroker(1, connect, tmp_path / "data", {**config}) as broker:
        store, stranger = connected(connect, access_from(config)), connected(connect, ZooKeeperAccess())
        try:
            found = store.get_acls_many(["/brokers/ids/1", "/config/users", "/consumers"])
            shown = [[(acl.scheme, acl.identity, acl.permissions) for acl in acls or ()] for acls in found]
            own, readable = ("sasl", USER, "rwcda"), ("world", "anyone", "r")
            assert shown == [[own, readable], [own], [("world", "anyone", "rwcda")]]
            assert stranger.get("/brokers/ids/1")[0]
            with pytest.raises(StoreError, match="ACL"):
                stranger.set("/brokers/ids/1", b"{}")
            with pytest.raises(StoreError, match="ACL"):
                stranger.children("/config/users")
        finally:
            store.close()
            stranger.close()
        listed = run_to_end("credentials", "list", tmp_path / "data.properties")
        assert listed.returncode == 0, listed.stderr
        log_ins = broker.log_text().count("zookeeper_connected")
        server.kill()
        server.start()
        wait_until(lambda: broker.log_text().count("zookeeper_connected") > log_ins, what="a second log-in")
        assert PASSWORD not in broker.log_text()
        assert "traceback=" not in broker.log_text()


def test_a_wrong_password_ends_the_start_with_the_key_before_anything_is_registered(
    server: ZooKeeperServer, tmp_path: Path
) -> None:
    connect = server.chroot("refused")
    config = {
        "broker.id": 1,
        "zookeeper.connect": connect,
        "log.dirs": tmp_path / "data",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **login("not-the-password"),
    }
    done = run_to_end("start", write_properties(tmp_path / "server.properties", config))
    line = one_line(done)
    assert "ZooKeeper refused the credentials" in line
    assert JAAS in line
    assert "not-the-password" not in done.stdout + done.stderr
    stranger = connected(connect, ZooKeeperAccess())
    try:
        assert stranger.children("/") == []
    finally:
        stranger.close()


def test_a_server_without_a_jaas_file_is_named_as_the_reason(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        store = ZooKeeperStore(server.connect_string, 2000, access_from(login(PASSWORD)))
        try:
            store.connect(10_000, threading.Event())
            with pytest.raises(
                StoreError, match="log-in by SASL has no end: check that the server has a JAAS file"
            ):
                store.children("/")
        finally:
            store.close()
