"""How the shipper connects to brokers: by the settings for clients that the role `broker` writes."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Of a properties file; of a JAAS string, whose options are quoted; of such an option.
_UNESCAPED = re.compile(r"\\(.)")
_OPTION = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_QUOTED = re.compile(r"\\(.)")


class ConfigError(Exception):
    """The configuration file is invalid. The message names the file, the line and the key."""


@dataclass(frozen=True, slots=True)
class Login:
    """How brokers are connected to: Kafka's settings for a client, as far as a CA and a SCRAM login need them."""

    protocol: str = "PLAINTEXT"
    trusted: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: Path) -> Login:
        """Parses a client.properties of the role `broker`. Errors never have a value, which may be a secret."""
        lines = (line.partition("=") for line in path.read_text().splitlines() if not line.startswith("#"))
        values = {key.strip(): _UNESCAPED.sub(_unescaped, value.strip()) for key, _unused, value in lines}
        protocol = values.get("security.protocol", "PLAINTEXT")
        if protocol not in {"PLAINTEXT", "SSL", "SASL_SSL"}:
            raise ConfigError(f"{path}: security.protocol must be PLAINTEXT, SSL or SASL_SSL")
        if protocol == "PLAINTEXT":
            return cls()
        trusted = values.get("ssl.truststore.certificates", "")
        if not trusted:
            raise ConfigError(f"{path}: ssl.truststore.certificates is missing")
        options = dict(_OPTION.findall(values.get("sasl.jaas.config", "")))
        if protocol == "SASL_SSL" and not options.keys() >= {"username", "password"}:
            raise ConfigError(f"{path}: sasl.jaas.config has no username and password")
        user, password = (_QUOTED.sub(r"\1", options.get(name, "")) for name in ("username", "password"))
        return cls(protocol, trusted, values.get("sasl.mechanism", ""), user, password)

    def settings(self) -> dict[str, Any]:
        """The client's keyword arguments."""
        if self.protocol == "PLAINTEXT":
            return {}
        context = ssl.create_default_context(cadata=self.trusted)
        # From Python 3.13 on it is strict, and refuses certificates that brokers take.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        found: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": context}
        if self.protocol == "SASL_SSL":
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return found


def _unescaped(match: re.Match[str]) -> str:
    """A letter after a backslash, as in Java's properties."""
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1])
