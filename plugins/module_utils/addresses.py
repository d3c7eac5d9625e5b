# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""How an address is written, and which one a host is reached at. For filters and modules; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def bracketed(host: object) -> str:
    """Returns a host as it stands in a URL: an IPv6 address in brackets."""
    address = str(host)
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def host_port(host: object, port: int | str) -> str:
    """Returns host:port as URLs and Kafka's properties have it."""
    return f"{bracketed(host)}:{port}"


def service_address(host: Mapping[str, Any]) -> str:
    """Returns the address at which the other hosts reach a host, from its inventory variables. Without
    `landline_address` it is the one at which Ansible does.
    """
    return str(host.get("landline_address") or host.get("ansible_host") or host["inventory_hostname"])
