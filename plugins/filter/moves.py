# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filters for the playbooks that move partitions: which brokers a host has, and the capacities of all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Ansible loads each file by itself, and a filter finds what modules use too by its directory.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "module_utils")]

from ansible_collections.landline.cluster.plugins.filter.landline import broker_ids  # noqa: E402


def broker_ids_of(hosts: Iterable[Mapping[str, Any]], name: str) -> list[int]:
    """Returns the ids of the brokers of the host with this name; takes the inventory variables of all hosts."""
    return sorted(broker_id for broker_id, names in broker_ids(hosts).items() if name in names)


def broker_capacities(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns C(--capacity) for each broker of a host whose broker_capacity is not 1."""
    known = list(hosts)
    capacity = {str(host["inventory_hostname"]): float(host.get("broker_capacity", 1)) for host in known}
    return [
        f"--capacity={broker_id}={capacity[names[0]]:g}"
        for broker_id, names in sorted(broker_ids(known).items())
        if capacity[names[0]] != 1
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        return {"broker_ids_of": broker_ids_of, "broker_capacities": broker_capacities}
