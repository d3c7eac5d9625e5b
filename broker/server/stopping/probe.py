"""Sends a Metadata request to another broker before a stop, by the inter-broker listener, as the restarted
broker would.

TLS and SASL are those of the properties file. So a trust store or a password that would cut the broker off from
the others is found before its stop. `stop_view` decides which brokers are asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.config.endpoint import Endpoint
from broker.config.keys import BROKER_KEYS
from broker.config.listeners import resolve_listeners
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.replication.broker_channel import BrokerChannel, ChannelError, ChannelSecurity
from broker.sasl.client import ClientLogin
from broker.server.stopping.stop_judge import RegisteredBroker

_METADATA_VERSION: Final = 4
_PROBE_MS: Final = 2000


@dataclass(frozen=True, slots=True)
class Probe:
    """How a broker is asked. ``security`` is None for a listener without TLS, ``login`` for one without SASL."""

    security: ChannelSecurity | None = None
    login: ClientLogin | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Probe:
        """With the TLS and the login of the inter-broker listener in these properties. Raises
        :class:`ConfigError` if the listener has either and a broker could not start with the properties.

        A PLAINTEXT listener needs none of that; then the properties are not checked.
        """
        if inter_broker_protocol(properties) == "PLAINTEXT":
            return cls()
        # Late: a PLAINTEXT listener does not need them.
        from broker.config.broker_config import BrokerConfig
        from broker.server.assembly import make_client_login
        from broker.server.tls import make_tls

        config = BrokerConfig.from_properties(properties)
        return cls(make_tls(config).between_brokers, make_client_login(config.sasl.between_brokers))

    def __call__(self, member: RegisteredBroker, endpoint: Endpoint) -> RegisteredBroker:
        """The member with its response, or with the reason why there was none."""
        channel = BrokerChannel(
            endpoint.host,
            endpoint.port,
            client_id="landline-may-stop",
            connect_timeout_ms=_PROBE_MS,
            request_timeout_ms=_PROBE_MS,
            security=self.security,
            login=self.login,
        )
        try:
            fields = {"topics": [], "allow_auto_topic_creation": False}
            response = channel.request(ApiKey.METADATA, _METADATA_VERSION, fields)
        except (ChannelError, ProtocolError) as error:
            return replace(member, silence=f"does not answer: {error}")
        finally:
            channel.close()
        return replace(
            member,
            cluster_id=response.cluster_id or None,
            controller_id=int(response.controller_id),
            knows=frozenset(int(broker.node_id) for broker in response.brokers),
        )


def inter_broker_protocol(properties: Mapping[str, str]) -> str:
    """The security protocol of the inter-broker listener; PLAINTEXT if there is no such listener."""

    def get(key: str) -> str | None:
        default = BROKER_KEYS[key].default
        return properties.get(key) or (None if default is None else str(default))

    def complain(_key: str, _message: str) -> None:
        """The broker's start will."""

    found = resolve_listeners(get, properties, complain)
    return next(
        (each.security_protocol for each in found.bound if each.listener_name == found.inter_broker),
        "PLAINTEXT",
    )
