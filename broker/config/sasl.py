"""Reads and checks what the keys say about SASL: for each SASL listener, and for connections to other brokers.

Pure. Like Kafka, a key counts for one mechanism of a listener (``listener.name.<listener>.<mechanism>.<key>``),
for one listener (``listener.name.<listener>.<key>``), or for all. Unlike Kafka, a plain ``sasl.jaas.config``
counts too, for the mechanisms that its login module is for; Kafka's brokers ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.config import kerberos
from broker.config.jaas import JaasEntry, read_jaas
from broker.config.kerberos import Kerberos, KerberosLogin
from broker.config.keys import BROKER_KEYS
from broker.config.listeners import Complain, Listeners
from broker.config.problems import did_you_mean

LISTENER_PREFIX: Final = "listener.name."
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
CLIENT_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
SIGNED: Final = f"{_OAUTH}OAuthBearerValidatorCallbackHandler"
SIGNED_OLD: Final = f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler"
UNSECURED: Final = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
JAAS: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
HANDLER: Final = "sasl.server.callback.handler.class"
_BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
_MAX_SESSION: Final = "connections.max.reauth.ms"
_MAX_RECEIVE: Final = "sasl.server.max.receive.size"
_JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
OAUTH_KEYS: Final = (
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    _JWKS_URL,
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
KEY_SCHEMES: Final = ("https", "http", "file")
#: What counts for a listener or one of its mechanisms alone.
PER_LISTENER: Final = frozenset(
    {JAAS, ENABLED, HANDLER, _MAX_SESSION, _MAX_RECEIVE, *OAUTH_KEYS, kerberos.RULES, kerberos.SERVICE}
)


@dataclass(frozen=True, slots=True)
class SaslListener:
    """What a SASL listener offers. ``jaas``, ``max_session_ms`` and ``settings`` are by mechanism: its login
    module, ``connections.max.reauth.ms``, and the values of :data:`OAUTH_KEYS` with the handler's class.
    ``kerberos`` is what GSSAPI needs, None if it is not enabled.
    """

    mechanisms: tuple[str, ...]
    jaas: Mapping[str, JaasEntry]
    max_session_ms: Mapping[str, int]
    max_receive_bytes: int
    settings: Mapping[str, Mapping[str, Any]]
    kerberos: Kerberos | None = None


class BrokerLogin(NamedTuple):
    """By what and as whom this broker logs in to others. With GSSAPI, ``kerberos`` has the key, and there is
    no password.
    """

    mechanism: str
    user: str
    password: str
    kerberos: KerberosLogin | None = None

    def __repr__(self) -> str:
        return f"<BrokerLogin {self.user} by {self.mechanism}>"


class Sasl(NamedTuple):
    """The SASL listeners by name, and the login to other brokers and that of a controller to them, None if their
    listener has no SASL.
    """

    listeners: Mapping[str, SaslListener]
    between_brokers: BrokerLogin | None
    of_controller: BrokerLogin | None


NO_SASL: Final = Sasl({}, None, None)


class _Reader(NamedTuple):
    """The keys of one listener. ``get`` returns a key's value, ``texts`` are those of the listeners' keys."""

    listener: str
    get: Callable[[str], Any]
    texts: Mapping[str, str]
    complain: Complain

    def named(self, key: str, mechanism: str = "") -> str:
        return _named(self.listener, key, mechanism)

    def source(self, key: str, mechanism: str = "") -> str:
        """The name under which the key is set; its own if it is not."""
        names = [self.named(key, mechanism)] if mechanism else []
        return next((name for name in [*names, self.named(key)] if name in self.texts), key)

    def value(self, key: str, mechanism: str = "") -> Any:
        name = self.source(key, mechanism)
        if name == key:
            return self.get(key)
        row = BROKER_KEYS[key]
        try:
            return row.parse(self.texts[name])
        except ValueError as error:
            shown = "its value" if row.sensitive else repr(self.texts[name])
            self.complain(name, f"{shown} is not valid: {error}")
            return row.default


def read_sasl(
    get: Callable[[str], Any],
    listener_texts: Mapping[str, str],
    listeners: Listeners,
    complain: Complain,
) -> Sasl:
    """Reads all keys about SASL and reports problems by ``complain(key, message)``. ``listener_texts`` has the
    texts of ``listener.name.*`` keys, ``get`` returns the value of any other.
    """
    names = [each.listener_name for each in listeners.bound if each.security_protocol.startswith("SASL")]
    _check_names(names, listener_texts, complain)
    if get(HANDLER):
        complain(HANDLER, f"is of one mechanism: set {_named('<listener>', HANDLER, 'oauthbearer')} instead")
    found = {
        name: _listener(_Reader(name.lower(), get, listener_texts, complain))
        for name in names
    }  # fmt: skip
    logins = {
        name: _broker_login(found[name], _Reader(name.lower(), get, listener_texts, complain))
        for name in {listeners.inter_broker: None, listeners.controller: None}
        if name in found
    }
    return Sasl(found, logins.get(listeners.inter_broker), logins.get(listeners.controller))


def _check_names(names: Sequence[str], texts: Mapping[str, str], complain: Complain) -> None:
    """A JAAS text for a listener or a mechanism that is not there would be a user who cannot log in."""
    listeners = [name.lower() for name in names]
    for name in texts:
        if not name.startswith(LISTENER_PREFIX) or not name.endswith((f".{JAAS}", f".{HANDLER}")):
            continue
        key = JAAS if name.endswith(JAAS) else HANDLER
        listener, _, mechanism = name[len(LISTENER_PREFIX) : -len(key) - 1].partition(".")
        if listener not in listeners:
            hint = did_you_mean(listener, listeners)
            complain(
                name, f"{listener} is none of the SASL listeners ({', '.join(listeners) or 'none'}).{hint}"
            )
        elif mechanism.upper() not in MECHANISMS or mechanism != mechanism.lower():
            hint = did_you_mean(mechanism, [one.lower() for one in MECHANISMS])
            complain(name, f"{mechanism or 'nothing'} is no mechanism, in small letters.{hint}")


def _listener(reader: _Reader) -> SaslListener:
    mechanisms = tuple(_mechanisms(reader))
    jaas = {mechanism: entry for mechanism in mechanisms if (entry := _jaas(reader, mechanism))}
    return SaslListener(
        mechanisms,
        jaas,
        {mechanism: reader.value(_MAX_SESSION, mechanism) for mechanism in mechanisms},
        reader.value(_MAX_RECEIVE),
        {mechanism: _settings(reader, mechanism) for mechanism in mechanisms},
        _kerberos(reader, jaas["GSSAPI"]) if "GSSAPI" in jaas else None,
    )


def _mechanisms(reader: _Reader) -> Iterator[str]:
    name = reader.source(ENABLED)
    enabled = reader.value(ENABLED)
    if not enabled:
        reader.complain(name, f"is empty: some of {', '.join(MECHANISMS)} are expected")
    for mechanism in dict.fromkeys(enabled):
        if mechanism == "GSSAPI" and not kerberos.has_package():
            reader.complain(
                name,
                f"GSSAPI (Kerberos, the default) needs the Python package {kerberos.PACKAGE}, which is not "
                f"installed: {kerberos.HOW_TO_INSTALL}, or name some of {', '.join(MECHANISMS[:-1])}",
            )
        elif mechanism in MECHANISMS:
            yield mechanism
        else:
            reader.complain(name, f"{mechanism} is no mechanism: {', '.join(MECHANISMS)} are")


def _jaas(reader: _Reader, mechanism: str) -> JaasEntry | None:
    name = reader.source(JAAS, mechanism)
    text = reader.value(JAAS, mechanism)
    entry = None
    if text:
        try:
            entry = read_jaas(text)
        except ValueError as error:
            reader.complain(name, str(error))
            return None
        if mechanism not in entry.mechanisms:
            if name != JAAS:
                reader.complain(name, f"{entry.module} is not the login module for {mechanism}")
            entry = None
    has_users = entry is not None and any(option.startswith("user_") for option in entry.options)
    if mechanism == "PLAIN" and not has_users and (entry is not None or not text or name == JAAS):
        wanted = reader.named(JAAS, mechanism)
        reader.complain(wanted, 'PLAIN has no users: set it, with the options user_NAME="password"')
    if mechanism == "GSSAPI" and entry is None and (not text or name == JAAS):
        wanted = reader.named(JAAS, mechanism)
        reader.complain(wanted, f"GSSAPI has no login module: set it, as in {kerberos.EXAMPLE}")
    return entry


def _kerberos(reader: _Reader, entry: JaasEntry) -> Kerberos | None:
    return kerberos.read_kerberos(
        entry,
        lambda key: reader.source(key, "GSSAPI"),
        lambda key: reader.value(key, "GSSAPI"),
        lambda message: reader.complain(reader.source(JAAS, "GSSAPI"), message),
    )


def _settings(reader: _Reader, mechanism: str) -> Mapping[str, Any]:
    name = reader.source(HANDLER, mechanism)
    handler = reader.value(HANDLER, mechanism) if name != HANDLER else None
    if mechanism != "OAUTHBEARER":
        if handler:
            reader.complain(
                name, f"{handler}: Java classes cannot be used, and {mechanism} needs none: remove it"
            )
        return {}
    settings = {key: reader.value(key, mechanism) for key in OAUTH_KEYS}
    if handler not in (SIGNED, SIGNED_OLD, UNSECURED):
        reader.complain(
            reader.named(HANDLER, mechanism),
            f"{handler or 'nothing'} does not say how tokens are checked: {SIGNED} checks their signatures; "
            f"{UNSECURED} takes any token, for tests",
        )
    elif handler != UNSECURED:
        _check_keys(reader, settings)
    elif not _skew_of(reader).isdecimal():
        reader.complain(
            reader.source(JAAS, mechanism),
            "unsecuredValidatorAllowableClockSkewMs is no number of at least 0",
        )
    return {**settings, HANDLER: handler}


def _skew_of(reader: _Reader) -> str:
    try:
        options = read_jaas(reader.value(JAAS, "OAUTHBEARER") or "").options
    except ValueError:
        return "0"  # reported already, or there is none
    return options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"


def _check_keys(reader: _Reader, settings: Mapping[str, Any]) -> None:
    url = settings[_JWKS_URL]
    if not url:
        reader.complain(_JWKS_URL, "must be set for OAUTHBEARER: an https or file URL of a JWKS")
    elif url.partition("://")[0] not in KEY_SCHEMES:
        name = reader.source(_JWKS_URL, "OAUTHBEARER")
        reader.complain(name, f"{url!r} is no URL of a JWKS: {', '.join(KEY_SCHEMES)} are possible")
    for key in OAUTH_KEYS:
        if key.endswith(".ms") and settings[key] < 1:
            reader.complain(
                reader.source(key, "OAUTHBEARER"), f"{settings[key]} is too small: at least 1 is expected"
            )


def _broker_login(listener: SaslListener, reader: _Reader) -> BrokerLogin | None:
    mechanism = reader.get(_BETWEEN_BROKERS)
    if mechanism not in CLIENT_MECHANISMS:
        reader.complain(
            _BETWEEN_BROKERS,
            f"{mechanism} is not possible between brokers: {', '.join(CLIENT_MECHANISMS)} are",
        )
        return None
    if mechanism not in listener.mechanisms:
        reader.complain(_BETWEEN_BROKERS, f"{mechanism} is not in {reader.source(ENABLED)}")
        return None
    if mechanism == "GSSAPI":
        return _kerberos_login(listener.kerberos, reader)
    entry = listener.jaas.get(mechanism)
    options = entry.options if entry else {}
    if not options.get("username") or not options.get("password"):
        reader.complain(
            reader.named(JAAS, mechanism),
            "needs the options username and password, by which this broker logs in to others",
        )
        return None
    return BrokerLogin(mechanism, options["username"], options["password"])


def _kerberos_login(found: Kerberos | None, reader: _Reader) -> BrokerLogin | None:
    if found is None:
        return None  # reported already
    login = found.login
    if not login.service:
        reader.complain(
            kerberos.SERVICE,
            "must be set for GSSAPI between brokers: the first part of their principals, as kafka",
        )
        return None
    return BrokerLogin("GSSAPI", login.principal, "", login)


def _named(listener: str, key: str, mechanism: str = "") -> str:
    middle = f"{mechanism.lower()}." if mechanism else ""
    return f"{LISTENER_PREFIX}{listener}.{middle}{key}"
