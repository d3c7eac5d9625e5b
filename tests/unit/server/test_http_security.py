"""The HTTP port with TLS and with a token: who is answered, who is not, and whom that holds up."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.metrics.registry import Metrics
from broker.server.http import http_endpoint
from broker.server.http.http_connections import MAX_CONNECTIONS
from broker.server.http.http_endpoint import HttpEndpoint, start_http
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.stopping.own_status import OwnStatus
from broker.server.tls import Tls, make_tls
from broker.utils.refusal_log import _refusals
from rig.certificates import trusting
from rig.wait import wait_until
from tests.support.certificates import DAY, Authority
from tests.support.one_answer import one_answer

TOKEN, OTHER = "a-token-of-24-characters", "another-token-0123456789"
WAIT_S = 20


@pytest.fixture(autouse=True)
def nobody_was_refused_yet() -> None:
    _refusals._peers.clear()


class Site:
    """A broker's HTTP port, its key store and its file of tokens."""

    def __init__(self, directory: Path) -> None:
        self.ca = Authority("Issuing CA", Authority())
        self.pem = directory / "http.pem"
        self.tokens = directory / "tokens"
        self.tokens.write_text(f"{TOKEN}\n")
        self.renew()
        self.endpoint: HttpEndpoint
        self.tls: Tls
        self.properties: dict[str, str] = {}
        self.status: dict[str, object] = {"loading": {"logs": 3, "segments": 4}}
        self._steps = StartupSteps(threading.Event(), lambda _: None, lambda _: None)

    def renew(self, name: str = "broker", ends: float = 90) -> None:
        self.ca.issue(name, ends=ends * DAY).write_pem(self.pem.with_suffix(".new"))
        self.pem.with_suffix(".new").replace(self.pem)

    def replace_tokens(self, text: str) -> None:
        self.tokens.with_suffix(".new").write_text(text)
        self.tokens.with_suffix(".new").replace(self.tokens)

    def keys(self, *, tls: bool = True, token: bool = True, health: bool = False) -> dict[str, str]:
        found = {"landline.http.health.token.required": str(health).lower()}
        if tls:
            found["landline.http.ssl.keystore.location"] = str(self.pem)
        if token:
            found["landline.http.token.file"] = str(self.tokens)
        return found

    def start(self, **kinds: bool) -> Site:
        self.properties = {
            "landline.standalone": "true",
            "log.dirs": "/d",
            "landline.http.host": "127.0.0.1",
            "landline.http.port": "0",
            **self.keys(**kinds),
        }
        config = BrokerConfig.from_properties(self.properties)
        self.tls = make_tls(config)
        self.endpoint = start_http(
            config,
            Metrics(),
            self._steps,
            status=lambda: self.status,
            unready_reasons=list,
            is_alive=lambda: True,
            wrap=self.tls.http,
        )
        self.properties["landline.http.port"] = str(self.endpoint.port)
        return self

    def stop(self) -> None:
        """What is told of connections that were left is told before another test listens."""
        self._steps.undo_all()
        if hasattr(self, "endpoint"):
            wait_until(lambda: len(self.endpoint._connections) == 0, what="nothing stays behind")

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.endpoint.port), WAIT_S)

    def trusting(self) -> ssl.SSLContext:
        context = trusting(self.ca.pem)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def certificate(self) -> object:
        with self.trusting().wrap_socket(self.raw(), server_hostname="127.0.0.1") as client:
            return client.getpeercert()["subject"]  # type: ignore[index]

    def get(self, path: str, token: str | None = None, *, scheme: str = "Bearer") -> int:
        return self.ask(path, {} if token is None else {"Authorization": f"{scheme} {token}"}).status

    def ask(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        client: http.client.HTTPConnection
        if self.endpoint.url.startswith("https:"):
            client = http.client.HTTPSConnection(
                "127.0.0.1", self.endpoint.port, timeout=WAIT_S, context=self.trusting()
            )
        else:
            client = http.client.HTTPConnection("127.0.0.1", self.endpoint.port, timeout=WAIT_S)
        with closing(client):
            client.request("GET", path, headers=headers)
            response = client.getresponse()
            response.read()
            return response


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


# -- the token


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_metrics_and_status_need_the_token_and_health_does_not(site: Site, tls: bool) -> None:
    site.start(tls=tls)
    for path in ("/metrics", "/status", "/status?pretty", "/", "/none"):
        assert site.get(path) == 401, path
    assert [site.get(path) for path in ("/livez", "/readyz?verbose")] == [200, 200]
    assert [site.get(path, TOKEN) for path in ("/metrics", "/status", "/none")] == [200, 200, 404]


def test_health_needs_the_token_too_if_the_operator_says_so(site: Site) -> None:
    site.start(health=True)
    assert [site.get(path) for path in ("/livez", "/readyz")] == [401, 401]
    assert [site.get(path, TOKEN) for path in ("/livez", "/readyz")] == [200, 200]


def test_without_a_token_everybody_is_answered(site: Site) -> None:
    site.start(token=False)
    assert site.get("/status") == 200


@pytest.mark.parametrize(
    "sent",
    [
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer",
        "Bearer ",
        "",
        "Bearer \xff\xfe",
        f"Bearer {TOKEN},{TOKEN}",
    ],
)
def test_whatever_is_not_the_token_is_refused_with_how_to_send_it(site: Site, sent: str) -> None:
    site.start(tls=False)
    answer = site.ask("/status", {"Authorization": sent})
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="landline"')


def test_a_browser_is_asked_for_the_token_as_a_password(site: Site) -> None:
    site.start(tls=False)
    assert site.ask("/", {}).headers.get_all("WWW-Authenticate")[1] == 'Basic realm="landline"'
    for text, status in (
        (f"anybody:{TOKEN}", 200),
        (f":{OTHER}", 401),
        (f"{TOKEN}:", 401),
        (TOKEN, 401),
        ("::", 401),
    ):
        sent = {"Authorization": f"Basic {b64encode(text.encode()).decode()}"}
        assert site.ask("/status", sent).status == status, text
    assert site.ask("/status", {"Authorization": "Basic not*base64"}).status == 401


def test_the_status_page_needs_the_token(site: Site) -> None:
    site.start(tls=False)
    assert site.get("/") == 401


def test_the_schemes_name_may_be_written_in_any_case(site: Site) -> None:
    site.start(tls=False)
    assert site.get("/status", TOKEN, scheme="bEARER") == 200


def test_a_refusal_is_one_line_a_second_without_what_was_sent(site: Site) -> None:
    site.start(tls=False)
    with capture_logs() as lines:
        for _ in range(5):
            assert site.get("/status?token=a-secret-in-the-target", "a-wrong-and-secret-token") == 401
    (line,) = lines
    assert (line["event"], line["path"], line["peer"]) == ("http_request_refused", "/status", "127.0.0.1")
    assert "secret" not in str(line)


def test_tokens_are_replaced_without_a_moment_in_which_none_is_taken(site: Site) -> None:
    site.start(tls=False)
    assert (site.get("/status", TOKEN), site.get("/status", OTHER)) == (200, 401)
    site.replace_tokens(f"{OTHER}\n{TOKEN}\n")
    assert (site.get("/status", TOKEN), site.get("/status", OTHER)) == (200, 200)
    site.replace_tokens(f"{OTHER}\n")
    assert (site.get("/status", TOKEN), site.get("/status", OTHER)) == (401, 200)


def test_a_file_of_tokens_that_became_unusable_leaves_those_from_before(site: Site) -> None:
    site.start(tls=False)
    site.replace_tokens("short\n")
    with capture_logs() as lines:
        assert [site.get("/status", TOKEN) for _ in range(3)] == [200] * 3
    assert [line["event"] for line in lines] == ["http_tokens_reload_failed"]
    site.tokens.unlink()
    with capture_logs() as lines:
        assert [site.get("/status", TOKEN) for _ in range(3)] == [200] * 3
    assert [line["event"] for line in lines] == ["http_tokens_reload_failed"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "does not exist"),
        ("", "has 0 tokens"),
        ("\n\n", "has 0 tokens"),
        (f"{TOKEN}\nshort-token\n", "line 2 of .* is no token"),
        ("a token of many words\n", "line 1 of .* is no token"),
        ("x" * 513, "line 1 of .* is no token"),
        (f"{TOKEN}\n" * 17, "has 17 tokens"),
        ("x" * 70_000, "is larger than"),
    ],
)
def test_a_bad_file_of_tokens_ends_the_start_with_its_key(
    site: Site, content: str | None, complaint: str
) -> None:
    site.tokens.unlink()
    if content is not None:
        site.tokens.write_text(content)
    with pytest.raises(ConfigError, match=rf"landline\.http\.token\.file: .*{complaint}") as caught:
        site.start(tls=False)
    assert "short-token" not in str(caught.value)


# -- TLS


def test_the_port_speaks_tls_only(site: Site) -> None:
    site.start(token=False)
    assert site.endpoint.url.startswith("https://127.0.0.1:")
    assert site.get("/livez") == 200
    with capture_logs() as lines, site.raw() as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"200" not in plain.recv(1000)
        wait_until(lambda: lines, what="the refusal is logged")
    (line,) = lines
    assert line["event"] == "http_handshake_failed"
    assert "does not speak TLS" in line["reason"]


def test_a_new_certificate_is_taken_up(site: Site) -> None:
    site.start()
    before = site.certificate()
    site.renew("another")
    site.tls.look_at_files()
    assert site.certificate() != before
    good = site.certificate()
    site.pem.write_text("nonsense")
    with capture_logs() as lines:
        site.tls.look_at_files()
    (line,) = lines
    assert (line["event"], line["key"]) == ("tls_reload_failed", "landline.http.ssl.keystore.location")
    assert site.certificate() == good


def test_the_certificates_days_left_are_a_metric_without_any_tls_listener(site: Site) -> None:
    site.start()
    metrics = Metrics()
    site.tls.register_metrics(metrics)
    (row,) = metrics.registered()
    assert row.name == "landline_ssl_certificate_days_left"
    assert list(row.instrument.function()) == [("landline.http",)]  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("landline.http.ssl.keystore.location", "/none.pem", "/none.pem does not exist"),
        ("landline.http.ssl.keystore.type", "pkcs12", "is PKCS12, but .* is a PEM file"),
        ("landline.http.ssl.keystore.type", "jks", "'jks' is not valid"),
        (
            "landline.http.ssl.keystore.password",
            "secret",
            "is PEM, which has none: a key has landline.http.ssl.key",
        ),
        ("ssl.cipher.suites", "NONE_SUCH", "NONE_SUCH is no cipher suite"),
        ("landline.http.health.token.required", "maybe", "'maybe' is not valid"),
    ],
)
def test_a_bad_value_ends_the_start_with_its_key(site: Site, key: str, text: str, complaint: str) -> None:
    props = {"landline.standalone": "true", "log.dirs": "/d", **site.keys(), key: text}
    with pytest.raises(ConfigError, match=complaint) as caught:
        make_tls(BrokerConfig.from_properties(props))
    assert [problem.key for problem in caught.value.problems] == [key]


def test_an_expired_certificate_ends_the_start(site: Site) -> None:
    site.renew(ends=-0.5)
    with pytest.raises(ConfigError, match=r"http\.pem expired on"):
        site.start()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("landline.http.ssl.keystore.password", "x"),
        ("landline.http.ssl.keystore.type", "PKCS12"),
        ("landline.http.health.token.required", "true"),
    ],
)
def test_a_key_without_effect_is_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: (has no effect without|needs) landline.http"):
        BrokerConfig.from_properties({"landline.standalone": "true", "log.dirs": "/d", key: text})


# -- the slow and the many


def _first_bytes_of_a_handshake(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["none of it", "half of it", "the first flight"])
def test_a_handshake_that_stops_holds_up_nobody(site: Site, share: float) -> None:
    site.start()
    hello = _first_bytes_of_a_handshake(site.trusting())
    with capture_logs() as lines, ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            with suppress(OSError):
                stack.enter_context(site.raw()).sendall(hello[: int(len(hello) * share)])
        for _ in range(5):
            assert site.get("/livez") == 200
        assert lines == [], "who is put out for another one has done nothing wrong"


def test_a_handshake_that_is_not_complete_in_time_is_closed_with_one_line(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_endpoint, "REQUEST_TIMEOUT_S", 0.3)
    site.start()
    with capture_logs() as lines, site.raw() as slow:
        slow.sendall(_first_bytes_of_a_handshake(site.trusting())[:20])
        assert slow.recv(1000) == b""
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("http_handshake_failed", "not complete after 0.3 s")
    ]


def test_a_byte_of_a_head_now_and_then_does_not_keep_a_tls_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_endpoint, "REQUEST_TIMEOUT_S", 0.5)
    site.start()
    with site.trusting().wrap_socket(site.raw(), server_hostname="127.0.0.1") as client:
        client.settimeout(0.05)
        sent = 0
        with suppress(OSError):
            while sent < 10_000:
                client.sendall(b"G")
                sent += 1
                with suppress(TimeoutError):
                    if client.recv(1) == b"":
                        break
        assert sent < 10_000


def test_who_is_put_out_of_a_tls_connection_gets_nothing_in_plain_text(site: Site) -> None:
    site.start()
    context = site.trusting()
    with ExitStack() as stack:
        first = stack.enter_context(site.raw())
        secured = context.wrap_socket(first, server_hostname="127.0.0.1")
        stack.enter_context(secured)
        fd = os.dup(secured.fileno())
        for _ in range(8):
            stack.enter_context(site.raw())
        with socket.socket(fileno=fd) as below:
            below.settimeout(WAIT_S)
            received = b""
            while chunk := below.recv(65536):
                received += chunk
        assert b"HTTP" not in received


# -- the commands of the same host


def test_a_command_asks_with_the_certificate_and_the_token_of_the_properties(site: Site) -> None:
    site.start()
    complaints: list[str] = []
    ask = OwnStatus(site.properties, complaints.append)
    assert ask() == {"loading": {"logs": 3, "segments": 4}}
    assert OwnStatus({**site.properties, "landline.http.token.file": ""}, complaints.append)() == {}
    assert complaints == []


def test_a_command_trusts_no_other_certificate_of_the_same_authority(site: Site) -> None:
    site.start()
    site.renew()
    assert OwnStatus(site.properties, lambda _: None)() == {}
    site.tls.look_at_files()
    assert OwnStatus(site.properties, lambda _: None)() != {}


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x03\x00\x02\x02F",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n7",
    ],
)
def test_a_command_goes_on_whatever_answers(answer: bytes) -> None:
    """A port that speaks TLS still, a broker that goes down while it answers, and another program."""
    with one_answer(answer) as url:
        port = url.rpartition(":")[2]
        assert OwnStatus({"landline.http.port": port}, lambda _: None)() == {}


def test_a_command_tells_once_what_it_cannot_read(site: Site) -> None:
    site.start()
    site.tokens.unlink()
    complaints: list[str] = []
    ask = OwnStatus(site.properties, complaints.append)
    assert [ask() for _ in range(3)] == [{}] * 3
    (told,) = complaints
    assert "landline.http.token.file" in told
