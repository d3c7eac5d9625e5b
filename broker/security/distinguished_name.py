"""Distinguished names as Java writes them (X500Principal.getName, RFC 2253), which is how Kafka's ACLs and
mapping rules have them.

The last part of the name comes first. Attributes other than RFC 2253's are their object identifier and the
value's encoding in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_KEYWORDS: Final[Mapping[str, str]] = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
# Encodings of the ASN.1 string types whose bytes are not UTF-8.
_ENCODINGS: Final[Mapping[int, str]] = {20: "latin-1", 28: "utf-32-be", 30: "utf-16-be"}


def java_name(name: Any) -> str:
    """The RFC 2253 form of a ``cryptography.x509.Name``."""
    return ",".join("+".join(_attribute(attribute) for attribute in part) for part in reversed(name.rdns))


def _attribute(attribute: Any) -> str:
    identifier = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{identifier}=#{_encoded(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in text)
    escaped = escaped.replace("\0", "\\00")
    stripped = escaped.strip(" ")
    lead = len(escaped) - len(escaped.lstrip(" "))
    trail = len(escaped) - len(stripped) - lead if stripped else 0
    return "\\ " * lead + stripped + "\\ " * trail


def _encoded(attribute: Any) -> bytes:
    """The value's DER encoding: tag, length, content."""
    tag: int = attribute._type.value  # noqa: SLF001 - the library has no public name for it
    value = attribute.value
    content = value if isinstance(value, bytes) else value.encode(_ENCODINGS.get(tag, "utf-8"))
    return bytes((tag, *_length(len(content)))) + content


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(digits), *digits))
