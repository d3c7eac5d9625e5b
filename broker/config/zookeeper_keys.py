"""Checks the keys about the security of the connection to ZooKeeper against each other."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final

from broker.config.jaas import ZOOKEEPERS, read_jaas
from broker.config.listeners import Complain

_TLS: Final = "zookeeper.ssl.client.enable"
_JAAS: Final = "landline.zookeeper.sasl.jaas.config"
_DIGEST: Final = "landline.zookeeper.digest"


def check_zookeeper(get: Callable[[str], Any], complain: Complain) -> None:
    """Reports problems by ``complain(key, message)``."""
    if not get(_TLS):
        for key in ("zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"):
            if get(key):
                complain(key, f"has no effect without {_TLS}=true: set that, or remove it")
    jaas, digest = get(_JAAS), get(_DIGEST)
    if digest and not all(digest.partition(":")):
        complain(_DIGEST, "is not user:password")
    if jaas:
        _check_jaas(jaas, complain)
    has_certificate = get(_TLS) and get("zookeeper.ssl.keystore.location")
    if get("zookeeper.set.acl") and not (jaas or digest or has_certificate):
        complain(
            "zookeeper.set.acl",
            f"needs credentials for ZooKeeper, or nobody could change its nodes: set {_DIGEST}, {_JAAS}, or "
            f"{_TLS}=true with zookeeper.ssl.keystore.location",
        )


def _check_jaas(jaas: str, complain: Complain) -> None:
    try:
        options = read_jaas(jaas, ZOOKEEPERS).options
    except ValueError as error:
        complain(_JAAS, str(error))
        return
    for name in ("username", "password"):
        if not options.get(name):
            complain(_JAAS, f"lacks {name}")
    if importlib.util.find_spec("puresasl") is None:
        complain(
            _JAAS,
            "needs the Python package pure-sasl, which is not installed: install landline[zookeeper-sasl], or "
            f"use {_DIGEST}",
        )
