"""Requests to a cluster's brokers, by one of them: on the inter-broker listener, with the TLS and the login of the
broker's properties file, like `may-stop`. So a command needs no user of its own, and works on a secured cluster.

What is asked and why is in `desired.admin` and `moves.admin`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from threading import Event
from typing import Any, Final, Self, TypeVar

from broker.config.broker_config import BrokerConfig
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.fields import Fields
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.server.assembly import make_channel_maker
from broker.server.tls import make_tls

_METADATA: Final = 8
_AT_ONCE: Final = 50
_TIMEOUT_MS: Final = 20_000
_CONTROLLER_S: Final = 30.0
_PAUSE_S: Final = 0.5

_Each = TypeVar("_Each")
Channels = Callable[[BrokerAddress], BrokerChannel]


class AdminError(Exception):
    """A request that failed: what, and why."""


FAILURES: Final = (AdminError, ChannelError, ProtocolError)


class ClusterRequests:
    """The connections to a cluster's brokers, of which ``first`` is known. Owns them: use it as a context manager.

    When ``first`` does not answer, the other brokers that it told of are asked.
    """

    def __init__(self, first: BrokerAddress, channels: Channels, pause: Callable[[float], object]) -> None:
        self.first = first
        self._make = channels
        self._pause = pause
        self._known: list[BrokerAddress] = []
        self._channels: dict[tuple[str, int], BrokerChannel] = {}
        self._closing = ExitStack()

    @classmethod
    def of(cls, config: BrokerConfig, client_id: str) -> Self:
        """By the broker with this configuration. Raises ConfigError for key stores that cannot be used."""
        name = config.inter_broker_listener_name
        own = next(each for each in config.advertised_listeners if each.listener_name == name)
        make = make_channel_maker(config, make_tls(config).between_brokers)
        address = BrokerAddress(config.broker_id, own.host, own.port)
        return cls(address, lambda at: make(at, client_id), Event().wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def metadata(self, *, topics: bool) -> Any:
        """The live brokers, and with ``topics`` all topics."""
        fields: Fields = {
            "topics": None if topics else [],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        found = self.ask_any(ApiKey.METADATA, _METADATA, fields)
        self._known = [address_of(row) for row in found.brokers] or self._known
        return found

    def ask_any(self, api_key: ApiKey, version: int, fields: Fields) -> Any:
        """The answer of the first broker, or of another one if that does not answer. Raises ChannelError."""
        try:
            return self.ask(self.first, api_key, version, fields)
        except ChannelError:
            for address in self._known:
                if (address.host, address.port) != (self.first.host, self.first.port):
                    try:
                        found = self.ask(address, api_key, version, fields)
                    except ChannelError:
                        continue
                    self.first = address
                    return found
            raise

    def ask_controller(
        self,
        api_key: ApiKey,
        version: int,
        fields: Fields,
        errors: Callable[[Any], Sequence[int]],
    ) -> Any:
        """The answer of the controller, whichever broker that is by then; ``errors`` are an answer's error codes.
        Raises AdminError when there is none for half a minute.
        """
        deadline = time.monotonic() + _CONTROLLER_S
        while True:
            metadata = self.metadata(topics=False)
            rows = [row for row in metadata.brokers if row.node_id == metadata.controller_id]
            if rows:
                answer = self.ask(address_of(rows[0]), api_key, version, fields)
                if Errors.NOT_CONTROLLER not in errors(answer):
                    return answer
            if time.monotonic() >= deadline:
                raise AdminError(f"the cluster has no controller since {_CONTROLLER_S:g} s")
            self._pause(_PAUSE_S)

    def ask(self, address: BrokerAddress, api_key: ApiKey, version: int, fields: Fields) -> Any:
        """This broker's answer. Raises ChannelError or ProtocolError."""
        at = address.host, address.port
        if at not in self._channels:
            self._channels[at] = self._make(address)
            self._closing.callback(self._channels[at].close)
        return self._channels[at].request(api_key, version, fields)


def with_timeout(fields: Fields, name: str = "timeout") -> Fields:
    """The fields of a request that the controller may take some time for."""
    return {**fields, name: _TIMEOUT_MS}


def address_of(row: Any) -> BrokerAddress:
    """The address in a broker's row of the metadata."""
    return BrokerAddress(row.node_id, row.host, row.port)


def batches(items: Sequence[_Each]) -> Iterator[Sequence[_Each]]:
    """A request about thousands of topics would be refused."""
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def check(row: Any, whose: str) -> None:
    """Raises AdminError if this row of an answer has an error."""
    error = Errors(int(row.error_code))
    if error is not Errors.NONE:
        raise AdminError(f"{whose}: {getattr(row, 'error_message', None) or error.name}")
