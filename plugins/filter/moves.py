# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filters for the playbooks that move partitions: which brokers a host has, the capacities of all of them, and whether
the run goes on that has the turn to move partitions, or a host's brokers in its hands. Pure, but for that look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Ansible loads each file by itself, and a filter finds what modules use too by its directory.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "module_utils")]

from ansible_collections.landline.cluster.plugins.filter.landline import broker_ids  # noqa: E402
from ansible_collections.landline.cluster.plugins.filter.runs import ENDED, GOES_ON, run_state  # noqa: E402

REBALANCE = "rebalance"
_NO_YEAR_MS = 253_402_300_800_000  # 10000-01-01


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


def move_rival(
    held: Mapping[str, Any] | None,
    holder: str,
    what: str,
    state: Callable[[Mapping[str, Any]], str] = run_state,
) -> dict[str, str]:
    """Returns whose turn this run takes over (`dead`, a name), or why it has to leave the turn to another (`why`), both
    empty if it need not care.

    `held` is what `landline rebalance --who` says, `holder` this run's name, and `what` it does. A run is dead if its
    process is gone. What is left of a rebalance needs nobody; a decommission or a replacement that is half done is for
    the same command to finish. A run that is interrupted and takes back what it has set is waited for, and one that is
    not seen from here keeps its turn until that expires: `landline` itself does both.
    """
    if not held or held.get("holder") == holder:
        return {"dead": "", "why": ""}
    run = held.get("run") or {}
    found, name = state(run), str(held["holder"])
    if found == GOES_ON and not held.get("is_ending"):
        why = (
            f"{name} has the turn to move partitions{_since(held)}, and goes on as process {run['pid']} of this "
            "machine. Two at once would undo each other's moves and throttles. When it has ended, run this again"
        )
        return {"dead": "", "why": why}
    if found != ENDED:
        return {"dead": "", "why": ""}
    if run.get("what") in {what, REBALANCE}:
        return {"dead": name, "why": ""}
    left_s = float(held["remaining_ms"]) / 1000
    why = (
        f"{name} has had the turn to move partitions{_since(held)}, and ended before it was done. Finish that first: "
        f"run the same again ({run.get('what', held.get('command'))}). Or end its turn, which takes its moves and "
        f"throttles back: make rebalance PAUSE=1. By itself it ends in {left_s:.0f} s"
    )
    return {"dead": "", "why": why}


def retiring(
    retired: Iterable[Mapping[str, Any]],
    host: str,
    abandoned: str = "",
    state: Callable[[Mapping[str, Any]], str] = run_state,
) -> str:
    """Returns why the host is left alone, empty if it need not be: a decommission has stopped its brokers to remove
    them, as `retired` says, a result of broker_instances_info.

    `abandoned` names the hosts, separated by commas, of which somebody says that their decommission is given up. Not
    while that is seen to go on.
    """
    found = list(retired)
    if not found:
        return ""
    run, units = found[0].get("run") or {}, ", ".join(str(each["unit"]) for each in found)
    since = f" since {run['since']}" if run.get("since") else ""
    told = f"{host}: {found[0].get('holder') or 'somebody'} is removing {units}{since}"
    seen = state(run)
    if seen == GOES_ON:
        return (
            f"{told}, and goes on as process {run['pid']} of this machine. Nothing was touched here. When it is done, "
            f"take {host} out of the group brokers"
        )
    if host in {each.strip() for each in abandoned.split(",")}:
        return ""
    machine = f" on the machine {run['machine']}" if run.get("machine") else ""
    over = (
        "that run ended before it was done"
        if seen == ENDED
        else f"whether that run{machine} goes on is not seen here"
    )
    waits = "Finish it" if seen == ENDED else "Wait for its end. If it has died, finish it"
    return (
        f"{told}; {over}. Nothing was touched here. {waits} (make decommission HOST={host}), or give it up and keep "
        f"the brokers: make deploy ANSIBLE_ARGS='-e decommission_abandoned={host}'"
    )


def _since(held: Mapping[str, Any]) -> str:
    since_ms = float(held.get("since_ms", 0))
    # Whoever writes the znode by hand may write any number.
    if not 0 < since_ms < _NO_YEAR_MS:
        return ""
    return f" since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        return {
            "broker_ids_of": broker_ids_of,
            "broker_capacities": broker_capacities,
            "move_rival": move_rival,
            "retiring": retiring,
        }
