"""Checks ``authorizer.class.name`` and the keys that an authorizer reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.config.listeners import Complain
from broker.config.types import Value

CLASS_KEY: Final = "authorizer.class.name"
SUPER_USERS_KEY: Final = "super.users"
EVERYONE_KEY: Final = "allow.everyone.if.no.acl.found"
ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
PREFIX: Final = "authorizer."

# A package of Java, which a Python class cannot be in.
_JAVA: Final = ("kafka.", "org.apache.", "io.confluent.")
_PYTHON: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*")
_POSSIBLE: Final = f"{ACL_AUTHORIZER}, or a Python class such as package.module:Class"
_NONE_SET: Final = (
    f"there is no authorizer, so everybody may do everything: set {CLASS_KEY}={ACL_AUTHORIZER}, or remove it"
)


class AuthorizerClass:
    """The validator of ``authorizer.class.name``."""

    __slots__ = ()

    def complaint(self, value: Value) -> str | None:
        name = str(value or "").strip()
        if name in ("", ACL_AUTHORIZER):
            return None
        if name.startswith(_JAVA) or not _PYTHON.fullmatch(name):
            return f"{_POSSIBLE} is expected"
        return None

    def describe(self) -> str:
        return _POSSIBLE


def check_authorizer(get: Callable[[str], Any], texts: Mapping[str, str], complain: Complain) -> None:
    """Reports keys that promise what no authorizer keeps. ``texts`` has the keys that were set."""
    name = str(get(CLASS_KEY) or "").strip()
    if not name and str(get(SUPER_USERS_KEY) or "").strip():
        complain(SUPER_USERS_KEY, _NONE_SET)
    if not name and EVERYONE_KEY in texts and not get(EVERYONE_KEY):
        complain(EVERYONE_KEY, _NONE_SET)
    if name in ("", ACL_AUTHORIZER):
        why = _NONE_SET if not name else "the ACLs are where zookeeper.connect says: remove it"
        for key in texts:
            if key.startswith(PREFIX) and key != CLASS_KEY:
                complain(key, why)
    if name == ACL_AUTHORIZER:
        for user in str(get(SUPER_USERS_KEY) or "").split(";"):
            if user.strip() and ":" not in user:
                complain(
                    SUPER_USERS_KEY,
                    f"{user.strip()!r} is no principal: Type:name is expected, such as User:alice",
                )


def authorizer_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """The settings that are passed to an authorizer."""
    return {
        key: text
        for key, text in texts.items()
        if (key.startswith(PREFIX) and key != CLASS_KEY) or key in (SUPER_USERS_KEY, EVERYONE_KEY)
    }
