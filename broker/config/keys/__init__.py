"""Every config key: Kafka 3.9.1's 328 broker keys and 36 topic keys with their types and defaults, and
Landline's own.

Each module is a group of keys; each row is a :class:`~broker.config.key.Key`. `docs/configuration.md` is
generated from them. `broker_config` and `topic_config` read files and check them against the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.config.key import Key
from broker.config.keys import (
    cleaner,
    controller,
    groups,
    identity,
    kraft,
    landline,
    log,
    network,
    quotas,
    remote,
    replication,
    security,
    security_sasl,
    security_ssl,
    topic,
    topics,
    transactions,
)

# In the order of the documentation.
BROKER_GROUPS: Final = (
    landline,
    identity,
    network,
    log,
    topics,
    replication,
    controller,
    groups,
    transactions,
    cleaner,
    quotas,
    security,
    security_ssl,
    security_sasl,
    remote,
    kraft,
)

BROKER_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {key.name: key for group in BROKER_GROUPS for key in group.KEYS}
)
TOPIC_KEYS: Final[Mapping[str, Key]] = MappingProxyType({key.name: key for key in topic.KEYS})
DYNAMIC_ONLY_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {key.name: key for key in landline.DYNAMIC_ONLY}
)
