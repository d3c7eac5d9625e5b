"""TLS of a client that connects to brokers: `landline doctor`, with the settings of Kafka's clients (``ssl.*``)."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from contextlib import suppress
from typing import Final

from broker.config.problems import ConfigError, Problem
from broker.config.values import ConfigValues
from broker.network.tls_transport import TlsTransport
from broker.network.transport import Transport
from broker.tls.certificates import alternative_names, check_key_store, check_trust_store
from broker.tls.contexts import client_context, secured
from broker.tls.settings import TlsError, TlsSettings
from broker.tls.stores import read_key_store, read_trust_store

# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_WRONG_NAME: Final = (62, 64)


class ClientTls:
    """A client's TLS; a ChannelSecurity. Its settings do not change. Raises ConfigError for stores that cannot
    be used.
    """

    def __init__(self, values: ConfigValues) -> None:
        settings = TlsSettings.of("client", values)
        now = dt.datetime.now(tz=dt.UTC)
        try:
            keys = read_key_store(settings.key_store)
            if keys is not None:
                check_key_store(keys, "ssl.keystore.location", str(settings.key_store.location), now)
            trusted = read_trust_store(settings.trust_store)
            if trusted is not None:
                check_trust_store(trusted, "ssl.truststore.location", str(settings.trust_store.location), now)
            self._context = client_context(settings, keys, trusted)
        except TlsError as error:
            raise ConfigError([Problem(error.key, None, str(error))]) from error

    def secure(self, sock: socket.socket, host: str) -> socket.socket:
        """The connected socket after the handshake. Raises OSError."""
        return secured(self._context, sock, host)

    @staticmethod
    def transport(sock: socket.socket) -> Transport:
        """A secured socket for use without blocking."""
        assert isinstance(sock, ssl.SSLSocket)
        return TlsTransport(sock)


def is_wrong_name(error: BaseException | None) -> bool:
    """Whether a handshake failed because the certificate is for other names."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _WRONG_NAME


def is_untrusted(error: BaseException | None) -> bool:
    """Whether a handshake failed because of the server's certificate, but not because of its names."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code not in _WRONG_NAME


def is_tls(error: BaseException | None) -> bool:
    """Whether the error is one of TLS."""
    return isinstance(error, ssl.SSLError)


def names_presented(host: str, port: int, timeout_s: float) -> str:
    """The names in the certificate of a server, which is not verified; empty if there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    encoded = None
    with (
        suppress(OSError),
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        encoded = connection.getpeercert(binary_form=True)
    if encoded is None:
        return ""
    from cryptography.x509 import load_der_x509_certificate

    try:
        return ", ".join(sorted(alternative_names(load_der_x509_certificate(encoded))))
    except ValueError:
        return ""


def openssl_version() -> str:
    return ssl.OPENSSL_VERSION
