"""A broker whose HTTP port has TLS and a token: what reads it works, and what is wrong with it ends the start."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from broker.server.stopping.own_status import OwnStatus
from rig.brokers import HOST, write_properties
from rig.certificates import trusting
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.integration.test_start_refusals import run_to_end
from tests.support.certificates import Authority
from tests.support.deploy_code import load
from tools import cluster_status, http_access
from tools.inventory import Broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOKEN = "the-token-of-this-integration-test"
health = load("plugins/modules/broker_health.py")
canary = load("plugins/modules/broker_canary.py")


class Site:
    """The files of a broker's HTTP port, and the broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.ca = self.authority.write_pem(directory / "ca.pem")
        self.pem = directory / "http.pem"
        self.renew("broker")
        self.token = directory / "token"
        self.token.write_text(f"{TOKEN}\n")
        self.broker = LandlineStandalone(directory / "data", dict(self.config))

    @property
    def config(self) -> dict[str, object]:
        return {
            "landline.http.ssl.keystore.location": self.pem,
            "landline.http.ssl.key.password": "key-secret",
            "landline.http.token.file": self.token,
        }

    @property
    def properties(self) -> dict[str, str]:
        known = {"landline.http.host": HOST, "landline.http.port": self.broker.http_port}
        return {name: str(value) for name, value in {**known, **self.config}.items()}

    def renew(self, name: str) -> None:
        new = self.authority.issue(name).write_pem(self.pem.with_suffix(".new"), "key-secret")
        new.replace(self.pem)

    def subject(self) -> str:
        context = trusting(Path(self.ca).read_text())
        with (
            socket.create_connection((HOST, self.broker.http_port), 20) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secured,
        ):
            return str(secured.getpeercert())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("http"))
    with made.broker:
        yield made
        log = made.broker.log_text()
    assert "traceback=" not in log
    assert TOKEN not in log
    assert "key-secret" not in log


@pytest.fixture
def tool(site: Site, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The broker, as the repository's tools know it when the environment has a CA and a token."""
    monkeypatch.setenv(http_access.CA_ENV, str(site.ca))
    monkeypatch.setenv(http_access.TOKEN_ENV, str(site.token))
    return Broker("here", 0, HOST, site.broker.port, site.broker.http_port, 0)


def test_a_scrape_with_the_token_gets_the_metrics_and_one_without_does_not(
    site: Site, tool: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, page = http_access.get(f"{tool.url}/metrics", 10)
    assert code == 200
    assert 'landline_ssl_certificate_days_left{listener="landline.http"}' in page
    monkeypatch.delenv(http_access.TOKEN_ENV)
    assert http_access.get(f"{tool.url}/metrics", 10)[0] == 401
    assert http_access.get(f"{tool.url}/readyz", 10)[0] == 200


def test_the_table_of_the_cluster_is_drawn_with_the_token_and_says_when_it_needs_one(
    tool: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = cluster_status.ask(tool)
    assert status["broker_id"] == 0
    assert cluster_status.is_well([status])
    monkeypatch.delenv(http_access.TOKEN_ENV)
    assert http_access.TOKEN_ENV in cluster_status.ask(tool)["error"]


def test_a_tool_trusts_only_the_authority_that_it_is_given(
    tool: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(http_access.CA_ENV, str(Authority("another").write_pem(tmp_path / "other.pem")))
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        http_access.get(f"{tool.url}/livez", 10)


def test_the_deployment_sees_whether_the_broker_serves_and_which_one_it_is(site: Site) -> None:
    asked = {"id": 7, "url": site.broker.http_url, "unit": "landline-broker@7.service"}
    wrong, _ = health.look(asked, 10, str(site.ca), health.first_line(str(site.token)))
    assert wrong == f"broker 0 answers at {site.broker.http_url}, where broker 7 should be"
    assert health.look(asked, 10, str(site.ca)) == (None, 0), "without the token only whether it is ready"


def test_await_return_sees_the_progress_by_the_files_of_the_properties(site: Site) -> None:
    complaints: list[str] = []
    assert OwnStatus(site.properties, complaints.append)()["broker_id"] == 0
    assert complaints == []


def test_a_renewed_certificate_is_served_without_a_restart(site: Site) -> None:
    site.renew("renewed")
    wait_until(lambda: "renewed" in site.subject(), 20, what="the new certificate")
    assert OwnStatus(site.properties, lambda _: None)()["broker_id"] == 0


def test_many_half_handshakes_hold_up_neither_http_nor_kafkas_clients(site: Site) -> None:
    before = site.broker.rss_mb()
    with ExitStack() as stack:
        for _ in range(200):
            with suppress(OSError):
                stack.enter_context(RawClient(HOST, site.broker.http_port)).send(b"\x16\x03\x01\x02\x00\x01")
        assert site.broker.is_ready()
        with RawClient(HOST, site.broker.port) as client:
            assert client.is_open()
    assert site.broker.rss_mb() - before < 20


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("landline.http.ssl.keystore.location", "/none.pem", "/none.pem does not exist"),
        ("landline.http.ssl.key.password", "wrong-secret", "does not open the key in"),
        ("landline.http.token.file", "/none", "/none does not exist"),
        ("landline.http.health.token.required", "perhaps", "is not valid"),
    ],
)
def test_a_bad_value_ends_the_start_with_its_key_and_its_line(
    site: Site, tmp_path: Path, key: str, value: str, complaint: str
) -> None:
    settings = {
        "broker.id": 1,
        "zookeeper.connect": "127.0.0.1:1",
        "log.dirs": tmp_path / "data",
        **site.config,
        key: value,
    }
    path = write_properties(tmp_path / "server.properties", settings)
    number = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if line.startswith(f"{key}="))
    for command in ("check-config", "start"):
        done = run_to_end(command, path)
        assert done.returncode == 78
        assert f"server.properties:{number}: {key}: " in done.stderr
        assert complaint in done.stderr
        assert "secret" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_first_broker_of_a_roll_and_the_others_are_watched_by_tls_and_with_the_token(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "process_of", canary.Process)
    url = f"https://{HOST}:{site.broker.http_port}"
    params = {
        "broker": {"url": url, "unit": "landline@1", "id": 1},
        "others": [url],
        "seconds": 0.0,
        "every_s": 0.1,
        "ca_file": str(site.ca),
    }
    with RawClient(HOST, site.broker.port) as client:
        client.create_topic("watched")
    own, (other,) = canary.watch(params, TOKEN)
    assert len(own) == len(other) == canary.LEAST
    assert all(look.serves and look.counts["CREATE_TOPICS"]["requests"] >= 1 for look in (*own, *other))
    assert canary.why_worse(1, own, [other]) == []
    # Without the token another broker is not compared. The broker's own host still knows that it serves.
    own, beside = canary.watch(params, "")
    assert all(look.serves and not look.counts for look in own)
    assert beside == []
    own, beside = canary.watch({**params, "ca_file": str(site.token)}, TOKEN)
    assert not any(look.serves for look in own)
    assert canary.why_worse(1, own, beside) == ["it does not serve clients any more"]
