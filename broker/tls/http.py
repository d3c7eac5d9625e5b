"""TLS of the HTTP port, by ``landline.http.ssl.*``: its settings, the server's handshake, and what a command on the
same host trusts.

The manager keeps the port's context with those of the listeners.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from typing import Final

from broker.config.http_keys import HTTP_KEY_STORE
from broker.config.problems import ConfigError, Problem
from broker.config.values import ConfigValues
from broker.network.handshakes import why_failed
from broker.tls.certificates import check_key_store
from broker.tls.contexts import client_context
from broker.tls.settings import StoreSettings, TlsError, TlsSettings, prefixed
from broker.tls.stores import read_key_store

#: The port's name where the listeners have theirs. None of them can be called so: they are in capitals.
HTTP: Final = "landline.http"
_PREFIX: Final = "landline.http."
_NO_STORE: Final = StoreSettings("PEM", None, None, None)
# The listeners' keys that the port has in common with them.
_SHARED: Final = ("ssl.cipher.suites", "ssl.enabled.protocols")


def http_settings(values: ConfigValues) -> TlsSettings | None:
    """The port's settings; None if it does not speak TLS. No client is asked for a certificate."""
    location = values.opt_str(HTTP_KEY_STORE)
    if location is None:
        return None
    return TlsSettings(
        listener=HTTP,
        key_store=StoreSettings(
            values.str("landline.http.ssl.keystore.type").upper(),
            location,
            values.opt_str("landline.http.ssl.keystore.password"),
            None,
            key_password=values.opt_str("landline.http.ssl.key.password"),
        ),
        trust_store=_NO_STORE,
        client_auth="none",
        protocols=tuple(values.list("ssl.enabled.protocols")),
        suites=tuple(values.list("ssl.cipher.suites")),
        checks_host_names=False,
        mapping_rules="DEFAULT",
        may_change_dn=True,
        may_change_san=True,
        in_kernel=False,
    )


def http_problem(error: TlsError) -> Problem:
    """The error in words of the port's keys."""
    key = error.key if error.key in _SHARED else _PREFIX + error.key
    text = prefixed(str(error), _PREFIX)
    for shared in _SHARED:
        text = text.replace(_PREFIX + shared, shared)
    return Problem(key, None, text)


def shake_hands(sock: socket.socket, timeout_s: float) -> None:
    """The server's handshake on a connection of the port, within ``timeout_s`` in all. Raises OSError, with
    the reason in words of the configuration.
    """
    assert isinstance(sock, ssl.SSLSocket)
    sock.settimeout(timeout_s)
    try:
        sock.do_handshake()
    except TimeoutError as error:
        raise TimeoutError(f"not complete after {timeout_s:g} s") from error
    except OSError as error:
        raise ConnectionError(why_failed(error)) from error


def own_context(values: ConfigValues) -> ssl.SSLContext | None:
    """What a command reaches the broker of its own properties with: it trusts the one certificate in the key
    store, whatever its names are. None if the port does not speak TLS. Raises ConfigError.
    """
    settings = http_settings(values)
    if settings is None:
        return None
    try:
        keys = read_key_store(settings.key_store)
        assert keys is not None
        now = dt.datetime.now(dt.UTC)
        check_key_store(keys, "ssl.keystore.location", str(settings.key_store.location), now)
        return client_context(settings, None, keys.chain[:1])
    except TlsError as error:
        raise ConfigError([http_problem(error)]) from error
