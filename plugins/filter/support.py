# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filter for the support bundle: what came of each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any


def support_hosts(hosts: Iterable[Mapping[str, Any]], place: str) -> dict[str, dict[str, Any]]:
    """Returns the state of each host by its name, for `support_bundle`. ``place`` has the fetched archives."""
    return {host["inventory_hostname"]: _state(host, place) for host in hosts}


def _state(host: Mapping[str, Any], place: str) -> dict[str, Any]:
    collected, fetched = host.get("support_collected", {}), host.get("support_fetched", {})
    if fetched.get("checksum"):
        archive = PurePath(place, f"{host['inventory_hostname']}.tar.gz")
        return {"state": "collected", "archive": str(archive), "errors": dict(collected.get("errors", {}))}
    steps = [host.get("support_reached", {}), collected, fetched]
    for step in steps:
        if step.get("unreachable"):
            return {"state": "unreachable", "why": _why(step)}
    failed: Mapping[str, Any] = next((step for step in steps if step.get("failed")), {})
    return {"state": "failed", "why": _why(failed)}


def _why(step: Mapping[str, Any]) -> str:
    return " ".join(str(step.get("msg") or "nothing is known").split())


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        return {"support_hosts": support_hosts}
