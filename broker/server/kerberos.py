"""Kerberos by the GSSAPI library: the security contexts of GSSAPI, and the check of its configuration at start.

Imported only if a listener offers GSSAPI, because the library is an extra. Its calls read the key file and
krb5.conf, lock and write the replay cache, and, of a client, ask the KDC. So a listener's run on the thread of
`network.login_thread`; a broker logs in to others on threads that may wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import gssapi
from gssapi.exceptions import GSSError

from broker.config.broker_config import BrokerConfig
from broker.config.kerberos import Kerberos, KerberosLogin
from broker.config.problems import ConfigError, Problem
from broker.sasl.apart import ApartExchange
from broker.sasl.exchange import LoginFailed, Tokens
from broker.sasl.gssapi_exchange import GssapiExchange, GssapiTokens
from broker.security.kerberos_names import KerberosNames, NameRefusedError

_SILENT_S: Final = 10
_KDC_UNREACH: Final = -1765328228 & 0xFFFFFFFF  # KRB5_KDC_UNREACH, as GSSAPI's unsigned minor code
_KERBEROS: Final = (gssapi.MechType.kerberos,)


def check_kerberos(config: BrokerConfig) -> None:
    """Raises ConfigError for a key that cannot be used, and for rules with a mistake."""
    problems = []
    for listener in config.sasl.listeners.values():
        if listener.kerberos is None:
            continue
        try:
            KerberosNames(listener.kerberos.rules)
        except ValueError as error:
            problems.append(Problem(listener.kerberos.rules_key, None, str(error)))
        try:
            _acceptor_key(listener.kerberos.login)
        except GSSError as error:
            login = listener.kerberos.login
            message = f"the key of {login.principal} cannot be used: {_reason(error)} ({login.keytab})"
            problems.append(Problem(listener.kerberos.login_key, None, message))
    if problems:
        raise ConfigError(problems)


def gssapi_exchanges(kerberos: Kerberos) -> Callable[[], ApartExchange]:
    """Makes the exchanges of a listener."""
    names = KerberosNames(kerberos.rules, _default_realm())

    def user_of(principal: str) -> str:
        try:
            return names.user_of(principal)
        except NameRefusedError as error:
            raise LoginFailed(str(error)) from error

    accept = partial(_accepting, kerberos.login)
    return lambda: ApartExchange(GssapiExchange(_Context(accept), user_of))


class KerberosClient:
    """How this broker logs in to others. Thread-safe.

    libkrb5 takes up to half a minute to give up a KDC that does not answer. For a while after that every log-in
    fails at once, so that a broker that stops does not wait anew for each attempt to reach the controller.
    """

    def __init__(self, login: KerberosLogin, now_s: Callable[[], float] = time.monotonic) -> None:
        self._login = login
        self._now_s = now_s
        self._silent_until_s = 0.0

    def tokens(self, host: str) -> Tokens:
        """The tokens by which this broker logs in to the one on ``host``."""
        if self._now_s() < self._silent_until_s:
            raise LoginFailed(f"no KDC answered in the last {_SILENT_S} s")
        return GssapiTokens(_Context(partial(_initiating, self._login, host), self._no_kdc))

    def _no_kdc(self) -> None:
        self._silent_until_s = self._now_s() + _SILENT_S


class _Context:
    """A security context; see :class:`~broker.sasl.gssapi_exchange.SecurityContext`. ``make`` makes the library's
    when the first token comes. ``no_kdc`` is told that no KDC could be reached.
    """

    def __init__(self, make: Callable[[], Any], no_kdc: Callable[[], None] = lambda: None) -> None:
        self._make = make
        self._no_kdc = no_kdc
        self._made: Any = None

    @property
    def is_established(self) -> bool:
        return self._made is not None and bool(self._made.complete)

    def initiator(self) -> str:
        with _failing():
            return str(self._made.initiator_name)

    def step(self, token: bytes) -> bytes:
        try:
            if self._made is None:
                self._made = self._make()
                # Without this an error would become a token, and be raised by whatever comes next.
                self._made.__DEFER_STEP_ERRORS__ = False
            return self._made.step(token or None) or b""
        except GSSError as error:
            if error.min_code == _KDC_UNREACH:
                self._no_kdc()
            raise LoginFailed(_reason(error)) from error

    def wrap(self, message: bytes) -> bytes:
        with _failing():
            return bytes(self._made.wrap(message, False).message)

    def unwrap(self, token: bytes) -> bytes:
        with _failing():
            return bytes(self._made.unwrap(token).message)


def _accepting(login: KerberosLogin) -> Any:
    """The server's end. The key file is read for each, so that a new key in it needs no restart."""
    return gssapi.SecurityContext(creds=_acceptor_key(login), usage="accept")


def _initiating(login: KerberosLogin, host: str) -> Any:
    """The client's end. The library keeps the tickets in memory, and gets new ones before they expire."""
    credentials = gssapi.Credentials(
        name=_principal(login.principal),
        usage="initiate",
        mechs=_KERBEROS,
        store={"client_keytab": login.keytab, "ccache": f"MEMORY:{login.principal}"},
    )
    service = gssapi.Name(f"{login.service}@{host}", gssapi.NameType.hostbased_service)
    wanted = gssapi.RequirementFlag
    return gssapi.SecurityContext(
        name=service,
        creds=credentials,
        mech=gssapi.MechType.kerberos,
        usage="initiate",
        flags=wanted.mutual_authentication
        | wanted.integrity
        | wanted.replay_detection
        | wanted.out_of_sequence_detection,
    )


def _acceptor_key(login: KerberosLogin) -> Any:
    return gssapi.Credentials(
        name=_principal(login.principal), usage="accept", mechs=_KERBEROS, store={"keytab": login.keytab}
    )


def _principal(name: str) -> Any:
    return gssapi.Name(name, gssapi.NameType.kerberos_principal)


def _default_realm() -> str:
    """The realm of krb5.conf; empty if there is none."""
    try:
        name = _principal("x").canonicalize(gssapi.MechType.kerberos)
    except GSSError:
        return ""
    return str(name).partition("@")[2]


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except GSSError as error:
        raise LoginFailed(_reason(error)) from error


def _reason(error: Any) -> str:
    """What Kerberos says, or GSSAPI if the mechanism says nothing."""
    code, is_major = (error.min_code, False) if error.min_code else (error.maj_code, True)
    return "; ".join(error.get_all_statuses(code, is_major))
