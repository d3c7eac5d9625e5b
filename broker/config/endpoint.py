"""A listener's address, as Kafka's EndPoint, and addresses in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener is; Kafka's EndPoint. An empty ``host`` is every interface (never so when advertised),
    ``port`` is 0 until it is bound.
    """

    host: str
    port: int
    listener_name: str
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener_name}://{host_port(self.host, self.port)}"


def host_port(host: str, port: int | str) -> str:
    """``host:port`` as URLs have it, and Kafka's properties: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
