"""What the keys say about GSSAPI: the broker's principal and its key, and how principals become users. Pure."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.config.jaas import JaasEntry

_JAAS: Final = "sasl.jaas.config"
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
RULES: Final = "sasl.kerberos.principal.to.local.rules"
SERVICE: Final = "sasl.kerberos.service.name"
PACKAGE: Final = "gssapi"
HOW_TO_INSTALL: Final = "install landline[gssapi], or Debian's python3-gssapi"
EXAMPLE: Final = (
    f'{MODULE} required useKeyTab=true keyTab="/etc/landline/kafka.keytab" principal="kafka/HOST@REALM";'
)


class KerberosLogin(NamedTuple):
    """The broker's principal, the file with its key, and the name of the service that brokers are."""

    principal: str
    keytab: str
    service: str | None


class Kerberos(NamedTuple):
    """GSSAPI on a listener. ``login_key`` and ``rules_key`` are the names under which these are set."""

    login: KerberosLogin
    rules: tuple[str, ...]
    login_key: str
    rules_key: str


def has_package() -> bool:
    """Whether the GSSAPI library is installed. Only a listener that offers GSSAPI loads it."""
    return importlib.util.find_spec(PACKAGE) is not None


def read_kerberos(
    entry: JaasEntry,
    source: Callable[[str], str],
    value: Callable[[str], Any],
    complain: Callable[[str], None],
) -> Kerberos | None:
    """What the login module of a listener says; None if it was wrong. ``value`` returns the listener's value of a
    key, ``source`` the name under which it is set, and ``complain`` reports a problem with the login module.
    """
    options = entry.options
    if (
        options.get("useKeyTab", "").lower() != "true"
        or not options.get("keyTab")
        or not options.get("principal")
    ):
        complain(f"needs useKeyTab=true, keyTab and principal, for the broker's own key, as in {EXAMPLE}")
        return None
    service, named = options.get("serviceName"), value(SERVICE)
    if service and named and service != named:
        complain(f"serviceName is {service}, and {SERVICE} is {named}: remove one of them")
        return None
    keytab = options["keyTab"].removeprefix("file:").removeprefix("FILE:")
    login = KerberosLogin(options["principal"], keytab, service or named or None)
    return Kerberos(login, tuple(value(RULES) or ("DEFAULT",)), source(_JAAS), source(RULES))
