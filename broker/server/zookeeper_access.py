"""What the configuration says about the security of the connection to ZooKeeper.

The broker has a checked configuration. Commands have only the text of a properties file, of which they check
these keys alone, so that they load little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.config.values import ConfigValues
from broker.zookeeper.access import NO_ACCESS, ZooKeeperAccess
from broker.zookeeper.connect_string import Secure

TLS: Final = "zookeeper.ssl.client.enable"
_PREFIXES: Final = ("zookeeper.ssl.", "zookeeper.set.acl", "landline.zookeeper.")


def access_of(config: ConfigValues) -> ZooKeeperAccess:
    """Raises ConfigError for key stores that cannot be used."""
    jaas = config.opt_str("landline.zookeeper.sasl.jaas.config")
    return ZooKeeperAccess(
        secure=_secure(config),
        digest=config.opt_str("landline.zookeeper.digest"),
        sasl=None if jaas is None else _login(jaas),
        sets_acls=config.bool("zookeeper.set.acl"),
        most_bytes=config.int("landline.zookeeper.jute.maxbuffer"),
    )


def access_from(properties: Mapping[str, str]) -> ZooKeeperAccess:
    """The same for a command that reads a properties file. Raises ConfigError."""
    if not any(name.startswith(_PREFIXES) for name in properties):
        return NO_ACCESS
    return access_of(_values(properties))


def secure_from(properties: Mapping[str, str]) -> Secure | None:
    """Only TLS. Raises ConfigError."""
    if properties.get(TLS, "").strip().lower() != "true":
        return None
    return _secure(_values(properties))


def _values(properties: Mapping[str, str]) -> ConfigValues:
    from broker.config.static_check import values_of

    return values_of(properties, _PREFIXES)


def _secure(config: ConfigValues) -> Secure | None:
    if not config.bool(TLS):
        return None
    from broker.tls.zookeeper import ZooKeeperTls

    return ZooKeeperTls(config)


def _login(jaas: str) -> tuple[str, str]:
    from broker.config.jaas import ZOOKEEPERS, read_jaas

    options = read_jaas(jaas, ZOOKEEPERS).options
    return options["username"], options["password"]
