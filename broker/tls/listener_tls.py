"""A listener's TLS: its contexts in force, and how they are replaced when keys or files change.

A new connection has the contexts of its time. A replacement that cannot be used changes nothing.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.network.handshakes import PrincipalError
from broker.network.tls_transport import TlsTransport
from broker.network.transport import Transport
from broker.security.distinguished_name import java_name
from broker.security.principal_mapping import MappingError, PrincipalMapping
from broker.tls.certificates import (
    Moment,
    check_key_store,
    check_successor,
    check_trust_store,
    days_left,
)
from broker.tls.contexts import check_handshake, client_context, secured, server_context
from broker.tls.settings import TlsError, TlsSettings
from broker.tls.stores import read_key_store, read_trust_store

ANONYMOUS: Final = "User:ANONYMOUS"
Stamp = tuple[tuple[int, int, int] | None, ...]


def now_utc() -> Moment:
    return dt.datetime.now(dt.UTC)


class TlsState(NamedTuple):
    """All that connections of one time share. ``stamp`` tells whether the files have changed since."""

    settings: TlsSettings
    stamp: Stamp
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    chain: tuple[Any, ...]
    mapping: PrincipalMapping


def load(settings: TlsSettings, *, between_brokers: bool, now: Moment) -> TlsState:
    """Reads and judges everything. Raises TlsError. ``between_brokers``: it is the inter-broker listener."""
    stamp = stamp_of(settings)  # before the files are read: a change meanwhile is seen later
    where = settings.key_store.location or "the configuration"
    keys = read_key_store(settings.key_store)
    if keys is None:
        raise TlsError(
            "ssl.keystore.location",
            f"must be set, or ssl.keystore.key and ssl.keystore.certificate.chain: listener {settings.listener} "
            "has no certificate",
        )
    key = "ssl.keystore.location" if settings.key_store.location else "ssl.keystore.certificate.chain"
    check_key_store(keys, key, where, now)
    trusted = read_trust_store(settings.trust_store)
    if trusted is not None:
        key = "ssl.truststore.location" if settings.trust_store.location else "ssl.truststore.certificates"
        check_trust_store(trusted, key, settings.trust_store.location or "the configuration", now)
    try:
        mapping = PrincipalMapping(settings.mapping_rules)
    except MappingError as error:
        raise TlsError("ssl.principal.mapping.rules", str(error)) from error
    server = server_context(settings, keys, trusted)
    client = client_context(settings, keys, trusted) if between_brokers else None
    check_handshake(settings, server, client)
    return TlsState(settings, stamp, server, client, keys.chain, mapping)


def stamp_of(settings: TlsSettings) -> Stamp:
    """What changes when one of the files does; None for a file that is not there."""
    return tuple(_stamp(path) for path in settings.files)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class ListenerTls:
    """The TLS of one listener; Kafka's SslFactory. Its thread-safe readers see the old state or the new one;
    one thread at a time replaces it.
    """

    def __init__(
        self, settings: TlsSettings, *, between_brokers: bool, now: Callable[[], Moment] = now_utc
    ) -> None:
        self._between_brokers = between_brokers
        self._now = now
        self._failed: tuple[TlsSettings, Stamp] | None = None
        self.state = load(settings, between_brokers=between_brokers, now=now())

    def days_left(self) -> float:
        return days_left(self.state.chain, self._now())

    def differs(self, settings: TlsSettings) -> bool:
        """Whether the settings or the files differ from those in force."""
        return (settings, stamp_of(settings)) != (self.state.settings, self.state.stamp)

    def is_due(self, settings: TlsSettings) -> bool:
        """Whether they differ from those in force, and from those that failed last."""
        return self.differs(settings) and (settings, stamp_of(settings)) != self._failed

    def prepare(self, settings: TlsSettings) -> TlsState:
        """The state that these settings give. Raises TlsError."""
        state = load(settings, between_brokers=self._between_brokers, now=self._now())
        check_successor(
            self.state.chain[0],
            state.chain[0],
            key="ssl.keystore.location",
            may_change_dn=settings.may_change_dn,
            may_change_san=settings.may_change_san,
        )
        return state

    def reload(self, settings: TlsSettings) -> None:
        """Replaces the state for new connections. Raises TlsError, and then keeps the old one."""
        try:
            self.state = self.prepare(settings)
        except TlsError:
            self._failed = settings, stamp_of(settings)
            raise
        self._failed = None

    # -- the server side: ServerTls

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        return self.state.server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def principal(self, sock: ssl.SSLSocket) -> str:
        encoded = sock.getpeercert(binary_form=True)
        if encoded is None:
            return ANONYMOUS
        from cryptography.x509 import load_der_x509_certificate

        try:
            name = java_name(load_der_x509_certificate(encoded).subject)
            return f"User:{self.state.mapping.name_of(name)}"
        except (MappingError, ValueError) as error:
            raise PrincipalError(str(error)) from error

    # -- the client side: ChannelSecurity

    def secure(self, sock: socket.socket, host: str) -> socket.socket:
        """A connected socket to another broker, after the handshake. Raises OSError."""
        context = self.state.client
        assert context is not None
        return secured(context, sock, host)

    @staticmethod
    def transport(sock: socket.socket) -> Transport:
        assert isinstance(sock, ssl.SSLSocket)
        return TlsTransport(sock)
