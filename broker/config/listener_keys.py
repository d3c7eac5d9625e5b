"""Keys of one listener: ``listener.name.<listener>.<key>`` takes precedence over ``<key>``.

The listener's name is in lower case, as in Kafka. Of the keys that Kafka has for a listener, those in
:data:`PER_LISTENER` are used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from broker.config.endpoint import Endpoint
from broker.config.key import Key, Mode, Use
from broker.config.keys import BROKER_KEYS, security_ssl
from broker.config.problems import Problem
from broker.config.types import Value
from broker.config.values import ConfigValues

LISTENER_PREFIX: Final = "listener.name."
CONNECTIONS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
PER_LISTENER: Final = CONNECTIONS | {key.name for key in security_ssl.KEYS if key.use is Use.USED}
#: Those of them that the HTTP port has in common with the listeners.
_HTTP_TOO: Final = frozenset({"ssl.cipher.suites", "ssl.enabled.protocols"})


class ListenerConfig(ConfigValues):
    """A listener's configs: its own where they are set, otherwise the broker's."""

    def __init__(self, listener: str, set_values: Mapping[str, Value]) -> None:
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        own = {
            name.removeprefix(self._prefix): value
            for name, value in set_values.items()
            if name.startswith(self._prefix)
        }
        self._own = frozenset(own)
        super().__init__({**set_values, **own})

    def name_of(self, key: str) -> str:
        """The full name of the config that gives the value of ``key``."""
        return self._prefix + key if key in self._own else key


def listeners_key(name: str) -> Key | None:
    """The key in listener.name.<listener>.[<mechanism>.]<key>; None if ``name`` is none. In practice listener
    names contain no dots.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    parts = name.removeprefix(LISTENER_PREFIX).split(".")
    found = (BROKER_KEYS.get(".".join(parts[start:])) for start in (1, 2))
    return next((key for key in found if key is not None), None)


def used_key(name: str) -> Key | None:
    """The key in listener.name.<listener>.<key> if Landline uses it for single listeners."""
    base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return BROKER_KEYS[base] if name.startswith(LISTENER_PREFIX) and base in PER_LISTENER else None


@lru_cache(maxsize=256)
def own_key(name: str) -> Key | None:
    """The row of listener.name.<listener>.<key>, without a default; None if Landline does not use it. What
    Kafka lets a broker change for a listener can be changed at run time.
    """
    key = used_key(name)
    if key is None:
        return None
    mode = Mode.CLUSTER_WIDE if key.mode is Mode.PER_BROKER else key.mode
    return Key(name, key.type, None, key.importance, doc=key.doc, valid=key.valid, mode=mode, use=key.use)


def why_not_lower(name: str) -> str | None:
    """What is wrong with a name whose listener is not in lower case; None if nothing is."""
    listener, dot, key = name.removeprefix(LISTENER_PREFIX).partition(".")
    if listener == listener.lower():
        return None
    return f"has no effect in Kafka: write the listener in lower case, {LISTENER_PREFIX}{listener.lower()}{dot}{key}"


def speaks_tls(endpoint: Endpoint) -> bool:
    return endpoint.security_protocol in {"SSL", "SASL_SSL"}


def without_effect(names: Iterable[str], listeners: Iterable[Endpoint], *, http_does: bool) -> Iterator[str]:
    """Those of ``names`` that are about TLS, where no listener speaks it, or about no listener of the broker.
    ``http_does``: the HTTP port speaks TLS.
    """
    bound = tuple(listeners)
    speaks = any(speaks_tls(endpoint) for endpoint in bound)
    for name in names:
        if used_key(name) is not None:
            if not _is_for_one_of(name, bound):
                yield name
        elif name in PER_LISTENER - CONNECTIONS and not speaks and not (http_does and name in _HTTP_TOO):
            yield name


def _is_for_one_of(name: str, listeners: Iterable[Endpoint]) -> bool:
    """Whether a listener's own key has an effect on one of the listeners."""
    listener, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    return any(
        endpoint.listener_name.lower() == listener and (base in CONNECTIONS or speaks_tls(endpoint))
        for endpoint in listeners
    )


def why_not_dynamic(
    names: Iterable[str], listeners: Iterable[Endpoint], *, cluster_wide: bool
) -> list[Problem]:
    """Why listeners' own keys cannot be set for this broker, or for the whole cluster."""
    bound = tuple(listeners)
    problems = []
    for name in names:
        if not name.startswith(LISTENER_PREFIX):
            continue
        is_tls = name.removeprefix(LISTENER_PREFIX).partition(".")[2] not in CONNECTIONS
        if cluster_wide:
            if not is_tls:
                continue
            message = "is a listener's of one broker: set it for each broker, by its id"
        elif not _is_for_one_of(name, bound):
            what = "listener of this broker that speaks SSL" if is_tls else "listener of this broker"
            message = f"names no {what}; its name is in lower case"
        else:
            continue
        problems.append(Problem(name, None, message))
    return problems
