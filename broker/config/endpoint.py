"""A listener's address, Kafka's EndPoint, and addresses as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener's address; Kafka's EndPoint. An empty ``host`` means every interface (never when
    advertised). ``port`` is 0 until it is bound.
    """

    host: str
    port: int
    listener_name: str
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener_name}://{host_port(self.host, self.port)}"


def host_port(host: str, port: int | str) -> str:
    """``host:port`` as in URLs and in Kafka's properties: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
