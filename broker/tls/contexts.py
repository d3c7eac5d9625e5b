"""OpenSSL's contexts from a listener's settings and stores: one for its server side, one for a broker that
connects to it.

Every problem that would show only when a client connects is looked for here: a handshake in memory between
both contexts finds suites that do not fit the certificate, a CA that other brokers would not trust, and a
certificate that may not be used by clients.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from broker.network.handshakes import why_failed
from broker.tls.ciphers import Suites, suites_of
from broker.tls.settings import TlsError, TlsSettings
from broker.tls.stores import KeyStore

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# SSL_OP_ENABLE_KTLS, for which Python 3.11 has no name.
_IN_KERNEL: Final = 1 << 3


def server_context(settings: TlsSettings, keys: KeyStore, trusted: Sequence[Any] | None) -> ssl.SSLContext:
    """What a listener accepts connections with. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_common(context, settings)
    _load_keys(context, keys)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, trusted, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(
    settings: TlsSettings, keys: KeyStore | None, trusted: Sequence[Any] | None
) -> ssl.SSLContext:
    """What a broker connects to this listener of other brokers with. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_common(context, settings)
    context.check_hostname = settings.checks_host_names
    if keys is not None:
        _load_keys(context, keys)
    _load_trusted(context, trusted, ssl.Purpose.SERVER_AUTH)
    return context


def secured(context: ssl.SSLContext, sock: socket.socket, host: str) -> socket.socket:
    """A connected socket to a server of this name, after the client's handshake. Raises OSError, and then
    closes it.
    """
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except OSError:  # a failed verification is a ValueError too
        raise
    except ValueError as error:  # no host name can be like that
        sock.close()
        raise OSError(f"{host!r} is no host name that a certificate could be for: {error}") from error


def check_handshake(settings: TlsSettings, server: ssl.SSLContext, client: ssl.SSLContext | None) -> None:
    """Shakes hands with itself, except for host names. ``client`` is what other brokers have, which have the
    same settings; None for a listener that no broker connects to. Raises TlsError.
    """
    if client is None:
        client = _anybody(settings)
        if server.verify_mode is ssl.CERT_REQUIRED:
            return  # only a client's certificate could tell
    names_checked, client.check_hostname = client.check_hostname, False
    try:
        _shake_hands(server, client)
    finally:
        client.check_hostname = names_checked


def _anybody(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_common(context, settings)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        ("client", client.wrap_bio(to_client, to_server, server_side=False)),
        ("server", server.wrap_bio(to_server, to_client, server_side=True)),
    ]
    for turn in range(20):
        side, end = ends[turn % 2]
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            raise _unfit(side, error) from error
        if side == "server":
            return


def _unfit(side: str, error: ssl.SSLError) -> TlsError:
    if error.reason == "NO_SHARED_CIPHER":
        return TlsError("ssl.cipher.suites", "no suite fits the certificate's key and ssl.enabled.protocols")
    if isinstance(error, ssl.SSLCertVerificationError):
        whose = (
            "this listener's certificate" if side == "client" else "this broker's certificate as a client's"
        )
        return TlsError(
            "ssl.truststore.location",
            f"does not trust {whose}, so brokers with these settings could not connect to each other "
            f"({error.verify_message}): put the CA of ssl.keystore.location there",
        )
    return TlsError("ssl.keystore.location", f"cannot be used for TLS: {why_failed(error)}")


def _set_common(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.in_kernel:
        context.options |= _IN_KERNEL
    suites = _suites(context, settings)
    versions = _versions(settings, suites)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # Any certificate in the trust store is trusted, as in Java, also one that is not its own issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _suites(context: ssl.SSLContext, settings: TlsSettings) -> Suites:
    key = "ssl.cipher.suites"
    try:
        suites = suites_of(settings.suites)
    except ValueError as error:
        raise TlsError(key, str(error)) from error
    for name in suites.tls_1_2:  # OpenSSL ignores an unknown name among known ones
        try:
            context.set_ciphers(name)
        except ssl.SSLError as error:
            raise TlsError(
                key, f"{name} is no cipher suite of this OpenSSL, {ssl.OPENSSL_VERSION}"
            ) from error
    if suites.tls_1_2:
        context.set_ciphers(":".join(suites.tls_1_2))
    return suites


def _versions(settings: TlsSettings, suites: Suites) -> list[ssl.TLSVersion]:
    names = set(settings.protocols)
    if settings.suites:
        fitting = {"TLSv1.2"} if suites.tls_1_2 else set()
        names &= fitting | ({"TLSv1.3"} if suites.tls_1_3 else set())
    if not names:
        raise TlsError(
            "ssl.cipher.suites",
            f"has no suite for ssl.enabled.protocols={','.join(settings.protocols)}: add some, or remove the key",
        )
    return [_VERSIONS[name] for name in names]


def _load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    """OpenSSL reads keys from files only: here from one in memory."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    texts = [keys.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    texts += [certificate.public_bytes(Encoding.PEM) for certificate in keys.chain]
    fd = os.memfd_create("landline-key-store", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(b"".join(texts))
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    except ssl.SSLError as error:
        raise TlsError(
            "ssl.keystore.location", f"OpenSSL does not take the key or its certificates: {error}"
        ) from error
    finally:
        os.close(fd)


def _load_trusted(context: ssl.SSLContext, trusted: Sequence[Any] | None, purpose: ssl.Purpose) -> None:
    if trusted is None:  # the system's, as Java's then are the JVM's
        context.load_default_certs(purpose)
        return
    from cryptography.hazmat.primitives.serialization import Encoding

    context.load_verify_locations(
        cadata=b"".join(certificate.public_bytes(Encoding.DER) for certificate in trusted)
    )
