"""How an address is written. For filters and modules; pure."""

from __future__ import annotations


def host_port(host: object, port: int | str) -> str:
    """Returns host:port as URLs and Kafka's properties have it: an IPv6 address in brackets."""
    address = str(host)
    return f"[{address}]:{port}" if ":" in address and not address.startswith("[") else f"{address}:{port}"
