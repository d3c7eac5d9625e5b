"""The keys of the HTTP port's TLS and token, checks of them against each other, and whether anything speaks TLS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.config.listener_keys import speaks_tls
from broker.config.listeners import Complain
from broker.config.types import Value

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

HTTP_KEY_STORE: Final = "landline.http.ssl.keystore.location"
TOKEN_FILE: Final = "landline.http.token.file"  # noqa: S105 - a key's name
HEALTH_TOO: Final = "landline.http.health.token.required"
_TLS_PREFIX: Final = "landline.http.ssl."


def check_http(get: Callable[[str], Any], given: Mapping[str, Value], complain: Complain) -> None:
    """Reports problems by ``complain(key, message)``."""
    if not get(HTTP_KEY_STORE):
        for key in given:
            if key.startswith(_TLS_PREFIX) and given[key] not in (None, ""):
                complain(key, f"has no effect without {HTTP_KEY_STORE}: set that, or remove it")
    if get(HEALTH_TOO) and not get(TOKEN_FILE):
        complain(HEALTH_TOO, f"needs {TOKEN_FILE}: set that, or remove it")


def has_tls(config: BrokerConfig) -> bool:
    """Whether any listener or the HTTP port speaks TLS."""
    return any(speaks_tls(endpoint) for endpoint in config.listeners) or bool(config.opt_str(HTTP_KEY_STORE))
