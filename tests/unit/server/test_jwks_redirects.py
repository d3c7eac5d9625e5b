"""Where the keys of OAUTHBEARER may come from, if their provider redirects."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest

from broker.server.jwks import fetch
from tests.support.certificates import Authority


def redirecting_to(target: str) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            moved = self.path == "/keys"
            self.send_response(302 if moved else 200)
            self.send_header("Location", target)
            self.end_headers()
            self.wfile.write(b"" if moved else b"of another server")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    return Answer


@pytest.fixture
def plain_server() -> Iterator[str]:
    """The address of an http server that has something at every path."""
    with serving(redirecting_to("")) as port:
        yield f"http://localhost:{port}/other"


@contextmanager
def serving(answer: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    with ThreadingHTTPServer(("localhost", 0), answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_redirect_from_https_to_http_is_not_followed(
    tmp_path: Path, plain_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue().write_pem(tmp_path / "server.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.write_pem(tmp_path / "ca.pem")))
    with serving(redirecting_to(plain_server), context) as port:
        assert fetch(f"https://localhost:{port}/other") == b"of another server"
        with pytest.raises(ValueError, match="from https to http is not followed"):
            fetch(f"https://localhost:{port}/keys")


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://localhost/keys"])
def test_a_redirect_to_another_kind_of_place_is_not_followed(target: str) -> None:
    with (
        serving(redirecting_to(target)) as port,
        pytest.raises((ValueError, HTTPError), match=r"is not (followed|allowed)"),
    ):
        fetch(f"http://localhost:{port}/keys")


def test_a_redirect_from_http_to_http_is_followed(plain_server: str) -> None:
    with serving(redirecting_to(plain_server)) as port:
        assert fetch(f"http://localhost:{port}/keys") == b"of another server"
