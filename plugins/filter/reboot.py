# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which hosts a run of playbooks/reboot.yml reboots, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

REBOOT, AWAIT, NOTHING = "reboot", "await", "nothing"
LEADER = "leader"


def reboot_turn(
    hosts: Iterable[Mapping[str, Any]], name: str, *, only_needed: bool, upgrade: bool, min_uptime_s: float
) -> str:
    """Returns what the host of this name is to do: `reboot`, `await` (it was rebooted, and whether it is back was
    not seen yet), or `nothing`.

    Takes the hosts' variables; `broker_boot_seen` is the result of host_boot_info, and missing for a host that was not
    reached. While a host has a note, the round that wrote it goes on: hosts without one are done. A new round is of
    all hosts whose boot is `min_uptime_s` old. With `only_needed` there is no round: hosts say themselves whether they
    need a reboot. With `upgrade` as well, that is known only in their turn.
    """
    seen = {
        str(host["inventory_hostname"]): host["broker_boot_seen"]
        for host in hosts
        if "broker_boot_seen" in host
    }
    own = seen[name]
    if own["noted"] not in {"", own["boot_id"]}:
        return AWAIT
    if only_needed:
        return REBOOT if own["needed"] or upgrade else NOTHING
    if any(each["noted"] for each in seen.values()):
        return REBOOT if own["noted"] else NOTHING
    return REBOOT if float(own["age_s"]) >= min_uptime_s else NOTHING


def reboot_still(seen: Mapping[str, Any], turn: str, *, only_needed: bool, dry_run: bool) -> str:
    """Returns what a host is to do whose `turn` has come, by `seen`, a new result of host_boot_info: another run may
    have rebooted it since it was chosen. Its note is gone once it was seen back. A `dry_run` writes no notes.
    """
    if seen["noted"] not in {"", seen["boot_id"]}:
        return AWAIT
    if turn != REBOOT:
        return turn
    if only_needed:
        return REBOOT if seen["needed"] else NOTHING
    return REBOOT if seen["noted"] or dry_run else NOTHING


def reboot_place(host: Mapping[str, Any]) -> str:
    """Returns the place of a host in the order: `broken`, `others`, `controller`, and last `leader`, the host of
    ZooKeeper's leader. Takes its variables.
    """
    if host.get("zookeeper_looked", {}).get("mode") == LEADER:
        return LEADER
    return str(host.get("broker_seen", {}).get("place", "others"))


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"reboot_turn": reboot_turn, "reboot_place": reboot_place, "reboot_still": reboot_still}
