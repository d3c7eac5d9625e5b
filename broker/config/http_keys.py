"""The keys of the HTTP port's TLS and token, and checks of them against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.config.listeners import Complain
from broker.config.types import Value

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
