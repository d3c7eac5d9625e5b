"""`ssl.cipher.suites` for OpenSSL: Kafka's configurations have Java's names, which are IANA's. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

#: The suites of TLS 1.3. OpenSSL's interface in Python 3.11 has no way to choose among them.
TLS_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
_NOT_A_SUITE: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
_IANA: Final = re.compile(
    r"TLS_(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_(?P<cipher>(?:AES|CAMELLIA)_\d+)_"
    r"(?:(?P<mode>CBC|GCM)_(?P<hash>SHA\d*)|(?P<ccm>CCM(?:_8)?))"
)
_CHACHA: Final = re.compile(r"TLS_(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA)_WITH_CHACHA20_POLY1305_SHA256")


class Suites(NamedTuple):
    """The suites of TLS 1.2 as OpenSSL names them, and whether those of TLS 1.3 are wanted."""

    tls_1_2: tuple[str, ...]
    tls_1_3: bool


def suites_of(names: Sequence[str]) -> Suites:
    """Raises ValueError for names that select only some suites of TLS 1.3."""
    newer = TLS_1_3.intersection(names)
    if newer and newer != TLS_1_3:
        missing = ", ".join(sorted(TLS_1_3 - newer))
        raise ValueError(
            f"the suites of TLS 1.3 are offered together or not at all: add {missing}, or remove "
            f"{', '.join(sorted(newer))}"
        )
    older = tuple(openssl_name(name) for name in names if name not in TLS_1_3 and name != _NOT_A_SUITE)
    return Suites(older, bool(newer))


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; an unknown name as it is."""
    match = _CHACHA.fullmatch(name)
    if match:
        return f"{match['exchange'].replace('_', '-')}-CHACHA20-POLY1305"
    match = _IANA.fullmatch(name)
    if match is None:
        return name
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    cipher = match["cipher"].replace("_", "")
    if match["ccm"]:
        return f"{exchange}{cipher}-{match['ccm'].replace('_', '')}"
    mode = "-GCM" if match["mode"] == "GCM" else ""
    return f"{exchange}{cipher}{mode}-{match['hash']}"
