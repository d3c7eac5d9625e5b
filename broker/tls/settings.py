"""A listener's TLS settings, and the errors about them. `contexts` makes OpenSSL's objects of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.config.values import ConfigValues


class TlsError(Exception):
    """TLS settings that cannot be used. ``key`` is the config to blame, by its name without the listener's
    prefix; the message says what to do.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a key store or a trust store is: a file, or PEM text in the configuration."""

    kind: str
    location: str | None
    password: str | None
    certificates: str | None
    key: str | None = None
    key_password: str | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What one listener's keys say about TLS. Equal settings give equal contexts, if the files are equal."""

    listener: str
    key_store: StoreSettings
    trust_store: StoreSettings
    client_auth: str
    protocols: tuple[str, ...]
    suites: tuple[str, ...]
    checks_host_names: bool
    mapping_rules: str
    may_change_dn: bool
    may_change_san: bool
    in_kernel: bool

    @classmethod
    def of(cls, listener: str, values: ConfigValues) -> TlsSettings:
        """``values`` has the listener's own keys in place of the global ones."""
        opt = values.opt_str
        return cls(
            listener=listener,
            key_store=StoreSettings(
                values.str("ssl.keystore.type").upper(),
                opt("ssl.keystore.location"),
                opt("ssl.keystore.password"),
                opt("ssl.keystore.certificate.chain"),
                opt("ssl.keystore.key"),
                opt("ssl.key.password"),
            ),
            trust_store=StoreSettings(
                values.str("ssl.truststore.type").upper(),
                opt("ssl.truststore.location"),
                opt("ssl.truststore.password"),
                opt("ssl.truststore.certificates"),
            ),
            client_auth=values.str("ssl.client.auth"),
            protocols=tuple(values.list("ssl.enabled.protocols")),
            suites=tuple(values.list("ssl.cipher.suites")),
            checks_host_names=opt("ssl.endpoint.identification.algorithm") is not None,
            mapping_rules=values.str("ssl.principal.mapping.rules"),
            may_change_dn=values.bool("ssl.allow.dn.changes"),
            may_change_san=values.bool("ssl.allow.san.changes"),
            in_kernel=values.bool("landline.ssl.kernel.enable"),
        )

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(store.location for store in (self.key_store, self.trust_store) if store.location)
        )


def prefixed(text: str, prefix: str) -> str:
    """The text of an error with ``prefix`` before the names of keys, but not in the names of files."""
    return re.sub(r"(?<![\w./-])ssl\.(?=\w)", f"{prefix}ssl.", text)
