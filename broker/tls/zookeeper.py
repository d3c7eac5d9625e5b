"""TLS to ZooKeeper, by ``zookeeper.ssl.*``. The stores and contexts are those of the listeners.

As in ZooKeeper's own client, the type of a store without ``zookeeper.ssl.keystore.type`` is that of its file's
name, and a PEM key has the key store's password.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from pathlib import PurePath
from typing import Final

import structlog

from broker.config.problems import ConfigError, Problem
from broker.config.values import ConfigValues
from broker.tls.certificates import check_key_store, check_trust_store, days_left
from broker.tls.contexts import client_context
from broker.tls.settings import StoreSettings, TlsError, TlsSettings, prefixed
from broker.tls.stores import read_key_store, read_trust_store

_log = structlog.get_logger(__name__)
_TYPES: Final = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
_BOTH: Final = ("TLSv1.2", "TLSv1.3")


class ZooKeeperTls:
    """Makes sockets speak TLS. Each connection has the stores as the files are then; if one has become
    unusable, the last good ones. Raises ConfigError.
    """

    def __init__(self, values: ConfigValues) -> None:
        self._settings = _settings(values)
        try:
            self._context = self._read()
        except TlsError as error:
            key, message = _in_zookeepers_words(error)
            raise ConfigError([Problem(key, None, message)]) from error

    def __call__(self, connection: socket.socket, host: str) -> socket.socket:
        """Shakes hands, in the time that the socket has for each operation. Raises OSError."""
        try:
            self._context = self._read()
        except TlsError as error:
            key, message = _in_zookeepers_words(error)
            _log.error("zookeeper_tls_reload_failed", key=key, reason=message)
        return self._context.wrap_socket(connection, server_hostname=host)

    def days_left(self) -> float | None:
        """Days until the own certificate expires; None without one. Raises TlsError."""
        keys = read_key_store(self._settings.key_store)
        return None if keys is None else days_left(keys.chain, dt.datetime.now(tz=dt.UTC))

    def _read(self) -> ssl.SSLContext:
        now = dt.datetime.now(tz=dt.UTC)
        keys = read_key_store(self._settings.key_store)
        if keys is not None:
            key, where = "ssl.keystore.location", str(self._settings.key_store.location)
            check_key_store(keys, key, where, now)
        trusted = read_trust_store(self._settings.trust_store)
        if trusted is not None:
            key, where = "ssl.truststore.location", str(self._settings.trust_store.location)
            check_trust_store(trusted, key, where, now)
        return client_context(self._settings, keys, trusted)


def _settings(values: ConfigValues) -> TlsSettings:
    protocol = values.str("zookeeper.ssl.protocol")
    protocols = values.value("zookeeper.ssl.enabled.protocols") or (
        _BOTH if protocol == "TLS" else (protocol,)
    )
    return TlsSettings(
        listener="zookeeper",
        key_store=_store(
            values.opt_str("zookeeper.ssl.keystore.type"),
            values.opt_str("zookeeper.ssl.keystore.location"),
            values.opt_str("zookeeper.ssl.keystore.password"),
        ),
        trust_store=_store(
            values.opt_str("zookeeper.ssl.truststore.type"),
            values.opt_str("zookeeper.ssl.truststore.location"),
            values.opt_str("zookeeper.ssl.truststore.password"),
        ),
        client_auth="none",
        protocols=tuple(protocols),
        suites=tuple(values.value("zookeeper.ssl.cipher.suites") or ()),
        checks_host_names=values.opt_str("zookeeper.ssl.endpoint.identification.algorithm") is not None,
        mapping_rules="DEFAULT",
        may_change_dn=True,
        may_change_san=True,
        in_kernel=False,
    )


def _store(kind: str | None, location: str | None, password: str | None) -> StoreSettings:
    by_name = _TYPES.get(PurePath(location or "").suffix.lower(), "JKS")
    kind = (kind or by_name).upper()
    if kind == "PEM":
        return StoreSettings(kind, location, None, None, key_password=password)
    return StoreSettings(kind, location, password, None)


def _in_zookeepers_words(error: TlsError) -> tuple[str, str]:
    """The key and the message, with ZooKeeper's keys instead of the listeners'."""
    return _renamed(error.key), _renamed(str(error))


def _renamed(text: str) -> str:
    return prefixed(text.replace("ssl.key.password", "ssl.keystore.password"), "zookeeper.")
