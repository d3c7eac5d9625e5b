"""What a broker's parts need of its TLS listeners. :mod:`broker.tls` is loaded only if there are any, because
OpenSSL takes memory.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker.config.broker_config import BrokerConfig
from broker.config.listener_keys import speaks_tls
from broker.metrics.registry import Metrics
from broker.network.transport import Security
from broker.replication.broker_channel import ChannelSecurity
from broker.utils.scheduler import KafkaScheduler

#: How often key stores and trust stores are looked at.
_LOOK_MS: Final = 5_000


class Tls(Protocol):
    """The TLS listeners of a broker, or that there are none."""

    @property
    def handshakes(self) -> Security | None: ...

    @property
    def between_brokers(self) -> ChannelSecurity | None: ...

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError if the listeners could not be reloaded with these configs."""

    def update(self, config: BrokerConfig) -> None:
        """Takes up changed keys and changed files."""

    def look_at_files(self) -> None: ...

    def tell(self) -> None:
        """Logs what the listeners have."""

    def register_metrics(self, metrics: Metrics) -> None: ...


class NoTls:
    """A broker without TLS listeners."""

    handshakes: Final = None
    between_brokers: Final = None

    def check(self, config: BrokerConfig) -> None: ...

    def update(self, config: BrokerConfig) -> None: ...

    def look_at_files(self) -> None: ...

    def tell(self) -> None: ...

    def register_metrics(self, metrics: Metrics) -> None: ...


def make_tls(config: BrokerConfig) -> Tls:
    """Reads and judges all key stores and trust stores. Raises ConfigError."""
    if not any(speaks_tls(endpoint) for endpoint in config.listeners):
        return NoTls()
    from broker.tls.manager import TlsManager

    return TlsManager(config)


def follow_files(tls: Tls, scheduler: KafkaScheduler) -> None:
    """Has the stores looked at from time to time."""
    if tls.handshakes is not None:
        scheduler.schedule("tls-files", tls.look_at_files, _LOOK_MS, _LOOK_MS)
