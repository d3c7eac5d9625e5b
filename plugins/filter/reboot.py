# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which hosts a run of playbooks/reboot.yml reboots, in which order, and whether another run is at it. Pure,
but for the look whether that run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ansible_collections.landline.cluster.plugins.filter.runs import ELSEWHERE, ENDED, run_state

REBOOT, AWAIT, NOTHING = "reboot", "await", "nothing"
LEADER = "leader"
_NO_YEAR_MS = 253_402_300_800_000  # 10000-01-01


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


def reboot_rivals(
    hosts: Iterable[Mapping[str, Any]],
    take_over: str = "",
    state: Callable[[Mapping[str, Any]], str] = run_state,
) -> dict[str, Any]:
    """Returns which runs that left notes on the hosts are over (`ended`, their names), and why this run has to leave
    the hosts alone (`why`, empty if it need not).

    Takes the hosts' variables: `broker_boot_seen` has the note, `broker_permit_seen` what `landline may-stop --who`
    says. A run is over if its process is gone. Where that is not seen from here, it may go on as long as it has
    the stop permit, which expires; `take_over`, the end of its name, says that it is over. A run of which nothing is
    known, and that has no permit, is neither: only the permit, for which all ask, keeps it and this one apart.
    """
    known = list(hosts)
    noted = {
        str(host["broker_boot_seen"]["holder"]): dict(host["broker_boot_seen"].get("run") or {})
        for host in known
        if host.get("broker_boot_seen", {}).get("holder")
    }
    permit = next((seen for host in known if (seen := host.get("broker_permit_seen"))), None) or {}
    ended, why = [], []
    for holder, run in noted.items():
        found = state(run)
        has_permit = permit.get("holder") == holder
        if found == ENDED or (found == ELSEWHERE and take_over and is_named(holder, take_over)):
            ended.append(holder)
        elif found != ELSEWHERE or has_permit:
            why.append(_why(holder, run, found, permit if has_permit else {}))
    return {"ended": ended, "why": "; ".join(why)}


def is_named(holder: str, name: str) -> bool:
    """Whether `name` is the holder's, or the run's in its brackets."""
    return name == holder or holder.endswith(f"(run {name})")


def _why(holder: str, run: Mapping[str, Any], found: str, permit: Mapping[str, Any]) -> str:
    since = f" since {run['since']}" if run.get("since") else ""
    machine = f", from the machine {run['machine']}" if run.get("machine") else ""
    told = f"{holder} reboots hosts of these{since}{machine}.{_has(permit) if permit else ''}"
    if found != ELSEWHERE:
        return f"{told} It goes on, as process {run['pid']} there. When it has ended, run this again"
    run_id = holder.rpartition("(run ")[2].rstrip(")")
    left_s = float(permit["remaining_ms"]) / 1000
    return (
        f"{told} Whether it goes on is not seen from here. When it has ended, run this again. If it has died, "
        f"the permit is free in {left_s:.0f} s at most; -e reboot_take_over={run_id} does not wait"
    )


def _has(permit: Mapping[str, Any]) -> str:
    since_ms, since = float(permit["since_ms"]), ""
    # Whoever writes the znode by hand may write any number.
    if 0 < since_ms < _NO_YEAR_MS:
        since = f" since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    return f" It has the stop permit for broker {permit['broker']}{since}."


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "reboot_turn": reboot_turn,
            "reboot_place": reboot_place,
            "reboot_still": reboot_still,
            "reboot_rivals": reboot_rivals,
        }
