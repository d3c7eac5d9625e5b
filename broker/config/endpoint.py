"""A listener's address, as Kafka's EndPoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``host`` is empty for every interface (never so when advertised), ``port`` 0 until it is bound."""

    host: str
    port: int
    listener_name: str
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"
