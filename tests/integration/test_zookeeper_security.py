"""A broker whose ZooKeeper speaks TLS and knows who writes: started, deregistered, its metadata backed up."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.server.registration.session_file import SessionFile
from broker.server.zookeeper_access import access_from
from broker.zookeeper.access import ZooKeeperAccess
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.session_end import SessionEnd, end_session
from broker.zookeeper.store import ConnectTimeoutError, StoreError
from rig.landline_broker import LandlineBroker
from rig.zookeeper import ZooKeeperServer
from tests.integration.test_start_refusals import run_to_end
from tests.support.certificates import Authority

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@dataclass
class Site:
    """A ZooKeeper server with TLS, and its authority's files."""

    directory: Path
    authority: Authority
    server: ZooKeeperServer

    def config(self, chroot: str, **changes: object) -> dict[str, object]:
        return {
            "zookeeper.connect": f"{self.server.host}:{self.server.secure_port}/{chroot}",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": self.directory / "client.pem",
            "zookeeper.ssl.truststore.location": self.directory / "ca.pem",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory, authority = tmp_path_factory.mktemp("zookeeper-tls"), Authority()
    stores = directory / "server.pem", authority.write_pem(directory / "ca.pem")
    authority.issue("zookeeper", with_rsa=True).write_pem(stores[0])
    authority.issue("landline", (), with_rsa=True).write_pem(directory / "client.pem")
    with ZooKeeperServer(directory / "data", tls=stores) as server:
        yield Site(directory, authority, server)


@contextmanager
def newer_port(site: Site) -> Iterator[int]:
    """A port that speaks TLS 1.3, by OpenSSL, before the server's plain port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(site.directory / "server.pem")
    ports: queue.SimpleQueue[int] = queue.SimpleQueue()
    ends: list[Callable[[], object]] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(site.server.host, site.server.port)
        await asyncio.gather(pump(reader, ours), pump(theirs, writer))

    async def run() -> None:
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(end.set))
        async with await asyncio.start_server(serve, site.server.host, 0, ssl=context) as server:
            ports.put(server.sockets[0].getsockname()[1])
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    yield ports.get(timeout=10)
    ends[0]()
    thread.join(10)


def connected(connect: str, access: ZooKeeperAccess) -> ZooKeeperStore:
    store = ZooKeeperStore(connect, 10_000, access)
    store.connect(20_000, threading.Event())
    return store


def texts(config: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in config.items()}


def test_a_broker_writes_its_znodes_by_tls_so_that_only_it_may_change_them(
    site: Site, tmp_path: Path
) -> None:
    # The session is to be ended by the command, not by its timeout, however long the command takes to start.
    config = site.config("sealed", zookeeper_set_acl="true", zookeeper_session_timeout_ms=30_000)
    with LandlineBroker(1, "", tmp_path / "data", config) as broker:
        store = connected(str(config["zookeeper.connect"]), access_from(texts(config)))
        stranger = connected(f"{site.server.connect_string}/sealed", ZooKeeperAccess())
        try:
            paths = ["/brokers/ids/1", "/config/topics", "/config/users", "/config/brokers", "/consumers"]
            found = store.get_acls_many(paths)
            shown = [[(acl.scheme, acl.permissions) for acl in acls or ()] for acls in found]
            own, readable = ("x509", "rwcda"), ("world", "r")
            assert shown == [[own, readable], [own, readable], [own], [own], [("world", "rwcda")]]
            assert stranger.get("/brokers/ids/1")[0]
            with pytest.raises(StoreError, match="ACL"):
                stranger.delete("/brokers/ids/1")
            with pytest.raises(StoreError, match="ACL"):
                stranger.children("/config/users")
        finally:
            store.close()
            stranger.close()
        properties = tmp_path / "data.properties"
        password = tmp_path / "password"
        password.write_text("secret\n")
        for command in (
            ("metadata", "backup", tmp_path / "tree.backup", properties),
            ("credentials", "set", properties, "--user", "alice", "--password-file", password),
            ("credentials", "list", properties),
            ("may-stop", properties, "--dry-run"),
            ("may-stop", properties, "--holder", "deploy"),
        ):
            done = run_to_end(*command)
            assert done.returncode == 0, done.stderr
        noted = SessionFile(broker.log_dir).read()
        assert noted is not None
        broker.kill()
        assert "dead_broker_deregistered" in run_to_end("deregister", properties).stderr
        access = access_from(texts(config))
        assert end_session(noted.session, 30, access.secure) is SessionEnd.GONE
        assert run_to_end("await-return", properties, "--holder", "deploy", "--within", "0").returncode == 75
        broker.start()
        done = run_to_end("await-return", properties, "--holder", "deploy")
        assert done.returncode == 0, done.stderr
        assert "traceback=" not in broker.log_text()


def test_a_tree_is_restored_by_tls_with_the_acls_that_it_had(site: Site, tmp_path: Path) -> None:
    config = site.config("restored", zookeeper_set_acl="true")
    with LandlineBroker(1, "", tmp_path / "data", config):
        properties = tmp_path / "data.properties"
        saved = run_to_end("metadata", "backup", tmp_path / "tree.backup", properties)
    assert saved.returncode == 0, saved.stderr
    config = site.config("restored-to")
    properties.write_text("".join(f"{name}={text}\n" for name, text in config.items()))
    done = run_to_end("metadata", "restore", tmp_path / "tree.backup", properties)
    assert done.returncode == 0, done.stderr
    store = connected(str(config["zookeeper.connect"]), access_from(texts(config)))
    try:
        found = store.get_acls_many(["/config/users", "/cluster/id", "/consumers"])
        assert [[(acl.scheme, acl.permissions) for acl in acls or ()] for acls in found] == [
            [("x509", "rwcda")],
            [("x509", "rwcda"), ("world", "r")],
            [("world", "rwcda")],
        ]
    finally:
        store.close()


def test_digest_credentials_own_the_znodes_without_tls(site: Site) -> None:
    access = access_from({"landline.zookeeper.digest": "kafka:secret", "zookeeper.set.acl": "true"})
    connect = f"{site.server.connect_string}/digest"
    store, stranger = connected(connect, access), connected(connect, ZooKeeperAccess())
    try:
        store.ensure_path("/config/users")
        (acls,) = store.get_acls_many(["/config/users"])
        assert acls is not None
        assert [(acl.scheme, acl.identity.partition(":")[0], acl.permissions) for acl in acls] == [
            ("digest", "kafka", "rwcda")
        ]
        with pytest.raises(StoreError, match="ACL"):
            stranger.get("/config/users")
    finally:
        store.close()
        stranger.close()


def test_thousands_of_operations_are_answered_by_tls(site: Site) -> None:
    config = site.config("many", zookeeper_ssl_protocol="TLS")
    _operate(connected(str(config["zookeeper.connect"]), access_from(texts(config))))
    config = site.config("many", zookeeper_ssl_enabled_protocols="TLSv1.3")
    with newer_port(site) as port:
        _operate(connected(f"{site.server.host}:{port}/newer", access_from(texts(config))))


def _operate(store: ZooKeeperStore) -> None:
    try:
        store.ensure_path("/many")
        for number in range(300):
            store.create(f"/many/{number}", b"x" * 900)
        paths = [f"/many/{number % 300}" for number in range(3000)]
        assert all(found is not None for found in store.get_many(paths))
        assert all(found is not None for found in store.get_many(paths, small=True))
        assert store.longest_silence_ms < 10_000
    finally:
        store.close()


def test_a_server_that_is_not_trusted_is_named_with_the_reason(site: Site, tmp_path: Path) -> None:
    foreign = Authority("Other").write_pem(tmp_path / "foreign.pem")
    config = site.config("foreign", zookeeper_ssl_truststore_location=foreign)
    store = ZooKeeperStore(str(config["zookeeper.connect"]), 6000, access_from(texts(config)))
    with pytest.raises(ConnectTimeoutError, match="certificate verify failed"):
        store.connect(2000, threading.Event())


def test_a_certificate_for_another_host_is_refused_unless_the_check_is_off(
    site: Site, tmp_path: Path
) -> None:
    stores = tmp_path / "server.pem", site.directory / "ca.pem"
    site.authority.issue("elsewhere", ("elsewhere.example",), with_rsa=True).write_pem(stores[0])
    with ZooKeeperServer(tmp_path / "data", tls=stores) as server:
        config = {**site.config("x"), "zookeeper.connect": f"{server.host}:{server.secure_port}"}
        connect = str(config["zookeeper.connect"])
        store = ZooKeeperStore(connect, 6000, access_from(texts(config)))
        with pytest.raises(ConnectTimeoutError, match="certificate verify failed"):
            store.connect(2000, threading.Event())
        config["zookeeper.ssl.endpoint.identification.algorithm"] = ""
        connected(connect, access_from(texts(config))).close()
