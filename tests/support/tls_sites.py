"""A TLS listener made of stores in a directory, and clients that shake hands with it in memory."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.listener_keys import ListenerConfig
from broker.tls.listener_tls import ListenerTls, load, now_utc
from broker.tls.settings import TlsError, TlsSettings
from rig.certificates import trusting
from tests.support.certificates import Authority, Issued, Stores


class Site(Stores):
    """Stores, and settings that name them."""

    def settings(self, **changes: str | None) -> TlsSettings:
        """``ssl_client_auth`` is ssl.client.auth; None takes a key away."""
        texts = dict(self.configs)
        for name, text in changes.items():
            key = name.replace("_", ".")
            texts.pop(key, None)
            if text is not None:
                texts[key] = text
        props = {
            "landline.standalone": "true",
            "log.dirs": "/d",
            "listeners": "PLAINTEXT://:0,SSL://:0",
            **texts,
        }
        config = BrokerConfig.from_properties(props)
        return TlsSettings.of("SSL", ListenerConfig("SSL", config.set_values))

    def refusal(
        self, *, between_brokers: bool = False, now: dt.datetime | None = None, **changes: Any
    ) -> tuple[str, str]:
        with pytest.raises(TlsError) as refused:
            load(self.settings(**changes), between_brokers=between_brokers, now=now or now_utc())
        return refused.value.key, str(refused.value)

    def file(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        return str(path)


def shaken(listener: ListenerTls, client: ssl.SSLContext) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """A server's and a client's end after the handshake."""
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    theirs.settimeout(10)
    secured: list[ssl.SSLSocket] = []

    def connect() -> None:
        try:
            secured.append(client.wrap_socket(theirs, server_hostname="localhost"))
        except OSError:
            theirs.close()

    thread = threading.Thread(target=connect)
    thread.start()
    accepted = listener.wrap(ours)
    try:
        accepted.do_handshake()
    except OSError:
        accepted.close()
        thread.join(10)
        for sock in secured:
            sock.close()
        raise
    thread.join(10)
    return accepted, secured[0]


def client_of(ca: Authority, own: Issued | None = None, directory: Path | None = None) -> ssl.SSLContext:
    context = trusting(ca.pem)
    if own is not None and directory is not None:
        context.load_cert_chain(own.write_pem(directory / "client.pem"))
    return context
