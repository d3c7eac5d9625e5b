# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Masks secrets in texts of a host before they leave it: configuration files, journals, answers of brokers.

Two ways complement each other. Where a secret's place is known by its name (a properties file, a JAAS option, an
HTTP header, a PEM block), what is there is masked. And every secret that the host's own files have is masked wherever
it occurs, in the spellings that logs use.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator

MASKED = "(masked)"
_SECRET_NAME = re.compile(
    r"passw|passphrase|passwd|secret|jaas|credential|api.?key|access.?key|private.?key|master.?key|digest|keystore\.key$"
    r"|certificate\.chain$|truststore\.certificates$|(?:^|[._-])tokens?$",
    re.IGNORECASE,
)
# Names that look like a secret's, but whose value is none: a file, a duration, an algorithm.
_HARMLESS = re.compile(
    r"LoadCredential|(?:file|location|path|type|algorithm|length|iterations|class|required|enabled?|url|\.ms|seconds)$",
    re.IGNORECASE,
)
# A key that is cut off: the rest of its line, and further lines of base64.
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----"
    r"(?:.{0,20000}?-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----|[^\n]*(?:\n[^\n]*[A-Za-z0-9+/=]{40,}[^\n]*)*)",
    re.DOTALL,
)
_VALUE = (
    r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|\\"(?:(?!\\")[^\n])*(?:\\")?"""
    r"""|(?:null|true|false)\b|[^\s"']+)"""
)
_SIGN = r"""\\?["']?[ \t]*[=:][ \t]*"""
# name=value and "name": "value" in any text, up to the value. The name decides. What may be long is bounded, or read
# once, for the time that a line of megabytes takes.
_NAMED = re.compile(rf"(?<![\w.])(?P<name>[A-Za-z_][\w.-]{{0,120}}){_SIGN}")
_AFTER = re.compile(_VALUE)
# A user's password of PlainLoginModule.
_PLAIN_USER = re.compile(rf"(?P<name>\buser_[^\s=\"']{{1,120}})(?P<sign>[ \t]*=[ \t]*)(?P<value>{_VALUE})")
_SCRAM = re.compile(r"\b(?P<name>salt|stored_key|server_key)(?P<sign>=)(?P<value>[A-Za-z0-9+/=]+)")
_BEARER = re.compile(
    r"(?P<name>\b(?:Bearer|Basic|Negotiate))(?P<sign>\s+)(?P<value>[A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE
)
_IN_URL = re.compile(
    r"(?P<name>\b[a-z][a-z0-9+]{0,20}://[^\s/:@]{1,120})(?P<sign>:)(?P<value>[^\s/@]{1,500})(?=@)",
    re.IGNORECASE,
)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,4000}")
_JAAS_OPTION = re.compile(rf"(?P<name>[\w.-]+)\s*=\s*(?P<value>{_VALUE})")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A shorter secret is masked only where it stands alone: it could be a part of any word.
_SHORT = 6


def is_secret(name: str) -> bool:
    """Returns whether a value with this name may be a secret."""
    plain = name.strip().strip("\"'")
    return _SECRET_NAME.search(plain) is not None and _HARMLESS.search(plain) is None


# -- properties files


def masked_properties(text: str) -> str:
    """Returns a properties file, or a file of environment variables, without its secrets. Comments may be keys
    that somebody switched off.
    """
    return "".join(_masked_line(raw, key) for raw, key, _unused in _logical_lines(text))


def _masked_line(raw: str, key: str) -> str:
    if key and is_secret(key):
        comment = "#" if raw.lstrip().startswith(("#", "!")) else ""
        return f"{comment}{key}={MASKED}\n"
    return raw


def secrets_of_properties(text: str) -> Iterator[str]:
    """Yields the secrets in a properties file: values of secret keys, and the options in a JAAS entry."""
    for _unused, key, value in _logical_lines(text):
        if key and is_secret(key) and value:
            yield value
            if "jaas" in key.lower() or "LoginModule" in value:
                yield from secrets_of_jaas(value)
            if "digest" in key.lower() and ":" in value:
                yield value.partition(":")[2]


def secrets_of_jaas(text: str) -> Iterator[str]:
    """Yields the passwords among the options of JAAS entries."""
    for match in _JAAS_OPTION.finditer(text):
        if is_secret(match["name"]) or match["name"].startswith("user_"):
            yield match["value"].strip("\"'")


def secrets_of_pem(text: str) -> Iterator[str]:
    """Yields the private keys in a PEM file."""
    yield from _PEM.findall(text)


def _logical_lines(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields each logical line as it is written, with its key and value unescaped. Of a comment too."""
    raw, content = "", ""
    for line in text.splitlines(keepends=True):
        raw += line
        stripped = line.strip(" \t\f\r\n")
        if not content and stripped.startswith(("#", "!")):
            stripped = stripped.lstrip("#! \t")
        content += stripped
        if _continues(stripped):
            content = content[:-1] or " "
            continue
        yield (raw, *_split(content))
        raw, content = "", ""
    if raw:
        yield (raw, *_split(content))


def _continues(content: str) -> bool:
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def _split(content: str) -> tuple[str, str]:
    end, escaped = len(content), False
    for index, char in enumerate(content):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=: \t\f":
            end = index
            break
    rest = content[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(content[:end]), _unescaped(rest)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _letter(match[1]), text)


def _letter(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)


# -- any text


class Masker:
    """Masks texts of a host. ``secrets`` are those that its files have."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {each for secret in secrets if secret.strip() for each in spellings_of(secret.strip())}
        # The longest first: a password may be a part of another.
        ordered = sorted(spellings, key=len, reverse=True)
        parts = [
            re.escape(each) if len(each) >= _SHORT else rf"(?<!\w){re.escape(each)}(?!\w)" for each in ordered
        ]
        self._known = re.compile("|".join(parts)) if parts else None

    def __call__(self, text: str) -> str:
        """Returns the text without secrets."""
        text = _PEM.sub(MASKED, text)
        if self._known is not None:
            text = self._known.sub(MASKED, text)
        text = "".join(_without_pairs(text))
        for pattern in (_PLAIN_USER, _SCRAM, _BEARER, _IN_URL):
            text = pattern.sub(rf"\g<name>\g<sign>{MASKED}", text)
        return _JWT.sub(MASKED, text)


def _without_pairs(text: str) -> Iterator[str]:
    """Yields the text in pieces. The value of a harmless name may itself begin with a pair."""
    done = 0
    for match in _NAMED.finditer(text):
        if match.start() < done or not is_secret(match["name"]):
            continue
        value = _AFTER.match(text, match.end())
        if value is not None:
            yield text[done : match.end()]
            yield _masked(value[0])
            done = value.end()
    yield text[done:]


def _masked(value: str) -> str:
    """Returns what is shown for a value: in its quotes, so that JSON stays JSON."""
    if value in ("null", "true", "false"):
        return value
    for quote in ('\\"', '"', "'"):
        if value.startswith(quote):
            return f"{quote}{MASKED}{quote}"
    return MASKED


def spellings_of(secret: str) -> set[str]:
    """Returns the forms in which a secret may be written: as it is, as each of its lines, escaped for properties
    and JSON, in a URL, and in base64.
    """
    data = secret.encode()
    found = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        secret.replace("\\", "\\\\"),
        secret.replace("\\", "\\\\").replace("=", "\\=").replace(":", "\\:").replace("#", "\\#"),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode().rstrip("="),
    }
    found |= {line.strip() for line in secret.splitlines() if len(line.strip()) >= 2 * _SHORT}
    return {each for each in found if each}
