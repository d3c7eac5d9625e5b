"""What a broker's parts need of its TLS listeners and of its HTTP port's TLS. :mod:`broker.tls` is loaded only if
there are any, because OpenSSL takes memory.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, Protocol

from broker.config.broker_config import BrokerConfig
from broker.config.http_keys import has_tls
from broker.metrics.registry import Metrics
from broker.network.transport import Security
from broker.replication.broker_channel import ChannelSecurity
from broker.utils.scheduler import KafkaScheduler

#: How often key stores and trust stores are looked at.
_LOOK_MS: Final = 5_000

Wrap = Callable[[socket.socket], socket.socket]


class Tls(Protocol):
    """The TLS listeners of a broker and its HTTP port, or that none of them speaks TLS."""

    @property
    def handshakes(self) -> Security | None: ...

    @property
    def between_brokers(self) -> ChannelSecurity | None: ...

    @property
    def of_controller(self) -> ChannelSecurity | None:
        """By what a controller reaches brokers."""

    @property
    def http(self) -> Wrap | None:
        """What a connection to the HTTP port is wrapped by."""

    def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError if the listeners could not be reloaded with these configs."""

    def update(self, config: BrokerConfig) -> None:
        """Takes up changed keys and changed files."""

    def look_at_files(self) -> None: ...

    def tell(self) -> None:
        """Logs what the listeners have."""

    def register_metrics(self, metrics: Metrics) -> None: ...


class NoTls:
    """A broker without TLS listeners, whose HTTP port does not speak TLS either."""

    handshakes: Final = None
    between_brokers: Final = None
    of_controller: Final = None
    http: Final = None

    def check(self, config: BrokerConfig) -> None: ...

    def update(self, config: BrokerConfig) -> None: ...

    def look_at_files(self) -> None: ...

    def tell(self) -> None: ...

    def register_metrics(self, metrics: Metrics) -> None: ...


def make_tls(config: BrokerConfig) -> Tls:
    """Reads and judges all key stores and trust stores. Raises ConfigError."""
    if not has_tls(config):
        return NoTls()
    from broker.tls.manager import TlsManager

    return TlsManager(config)


def follow_files(tls: Tls, scheduler: KafkaScheduler) -> None:
    """Has the stores looked at from time to time."""
    if not isinstance(tls, NoTls):
        scheduler.schedule("tls-files", tls.look_at_files, _LOOK_MS, _LOOK_MS)
