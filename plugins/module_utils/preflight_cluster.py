# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong between hosts, or in the inventory itself, before a deployment. Pure: see preflight_host.py for what
a host is. Each result is (hosts, what is wrong, is it only a warning).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.preflight_host import (
    FAULT,
    WARNING,
    Host,
    is_reached,
    needs,
)

Findings = list[tuple[list[str], str, bool]]

# Close enough to be a slip: brokrs, brokers2, but not backup.
_GROUP_LIKENESS = 0.8
_VARIABLE_LIKENESS = 0.88
# Ansible's own, and those that plays make.
_MADE = (
    "all",
    "ungrouped",
    "zookeeper_seen",
    "broker_roll_",
    "broker_over_",
    "broker_last_",
    "broker_restart_",
)


def groups(found: Mapping[str, Collection[str]], known: Sequence[str], required: Iterable[str]) -> Findings:
    """Groups that are missing or empty, and names that are almost those of a group that the playbooks know."""
    wrong: Findings = []
    for name in required:
        if not found.get(name):
            wrong.append(
                (
                    [],
                    f"the group {name} is {'empty' if name in found else 'missing'}: nothing would be deployed to it",
                    FAULT,
                )
            )
    ours = {host for name in known for host in found.get(name, ())}
    for name, hosts in found.items():
        if name in known or name.startswith(_MADE):
            continue
        meant = like(name, known)
        left_out = sorted(set(hosts) - ours)
        if meant and not found.get(meant):
            wrong.append(([], f"no playbook knows the group {name}: is it {meant}?", FAULT))
        elif meant and left_out:
            words = (
                f"no playbook knows the group {name}: is it {meant}? Nothing is deployed to {', '.join(left_out)}, "
                "which no group of Landline's has"
            )
            wrong.append(([], words, WARNING))
    return wrong


def like(name: str, names: Iterable[str]) -> str:
    """Returns the group of these names that a name is almost; "" if it is none."""
    return next(iter(difflib.get_close_matches(name, list(names), 1, _GROUP_LIKENESS)), "")


def variables(hosts: Iterable[Host], known: Collection[str]) -> Findings:
    """Variables that are almost those of a role, which ignores them."""
    prefixes = {name.partition("_")[0] + "_" for name in known}
    users: dict[str, list[str]] = {}
    for host in hosts:
        for name in host["variables"]:
            if name not in known and name.startswith(tuple(prefixes)):
                users.setdefault(name, []).append(host["name"])
    found: Findings = []
    for name, names in sorted(users.items()):
        like = difflib.get_close_matches(name, sorted(known), 1, _VARIABLE_LIKENESS)
        if like:
            found.append((names, f"no role has a variable {name}: is it {like[0]}?", WARNING))
    return found


def ids(hosts: Sequence[Host]) -> Findings:
    """Ids that two have. Ids are for ever, so nothing here chooses another one."""
    owners: dict[tuple[str, str, int], list[str]] = {}
    found: Findings = []
    for host in hosts:
        for each, numbers in needs(host, "ids"):
            for number in numbers:
                if re.fullmatch(r"-?\d+", str(number)):
                    owners.setdefault((each["id_of"], each["id_by"], int(number)), []).append(host["name"])
                else:
                    what = f"{each['id_of']} {number!r}: {each['id_by']} has to be a whole number"
                    found.append(([host["name"]], what, FAULT))
    return found + [
        (
            sorted(set(names)),
            f"{what} {number} is on {' and '.join(names)}: set {by} on every host, with room for more",
            FAULT,
        )
        for (what, by, number), names in sorted(owners.items())
        if len(names) > 1
    ]


def names(hosts: Sequence[Host]) -> Findings:
    """Names of hosts that others cannot resolve, resolve to themselves or resolve otherwise than the others do."""
    reached = [host for host in hosts if is_reached(host)]
    found: Findings = []
    for owner in hosts:
        for each, name in needs(owner, "address"):
            if _is_address(name):
                continue
            lost = [host["name"] for host in reached if not host["seen"]["names"].get(name, [name])]
            if lost:
                found.append(
                    (lost, f"cannot resolve {name}, which is {owner['name']} ({each['address_by']})", FAULT)
                )
            said = {
                host["name"]: host["seen"]["names"][name]
                for host in reached
                if host["name"] != owner["name"] and host["seen"]["names"].get(name)
            }
            itself = [host for host, addresses in said.items() if all(map(_is_loopback, addresses))]
            if itself:
                found.append(
                    (
                        itself,
                        f"resolves {name}, which is {owner['name']}, to itself ({', '.join(said[itself[0]])})",
                        FAULT,
                    )
                )
            found += _differing({host: what for host, what in said.items() if host not in itself}, owner)
    return found + _out_of_reach(reached) + _shared(hosts)


def _out_of_reach(reached: Sequence[Host]) -> Findings:
    """Servers that would listen for the others of their ensemble where none of these gets to.

    A broker may be named so on its own host. A server of ZooKeeper listens at its own address, as it resolves it.
    """
    servers = [
        (host, each, name) for host in reached for each, name in needs(host, "address") if "peers" in each
    ]
    found: Findings = []
    for host, each, name in servers:
        told = [] if _is_address(name) else host["seen"]["names"].get(name, [])
        if each["peers"] and told and all(map(_is_loopback, told)):
            words = (
                f"resolves its own name {name} to {', '.join(told)}, and its ZooKeeper server would listen for the "
                f"others there only: take the name from that line of /etc/hosts, or set {each['address_by']} to an "
                "address"
            )
            found.append(([host["name"]], words, FAULT))
    return found


def _differing(said: Mapping[str, Sequence[str]], owner: Host) -> Findings:
    """Answers that differ, or that are none of the owner's addresses."""
    if len({tuple(each) for each in said.values()}) > 1:
        words = "; ".join(f"{host}: {', '.join(each)}" for host, each in said.items())
        return [(list(said), f"resolve the name of {owner['name']} differently ({words})", WARNING)]
    own = set(owner["seen"].get("addresses", [])) if is_reached(owner) else set()
    for each in said.values():
        if own and not own & set(each):
            return [
                (
                    list(said),
                    f"resolve the name of {owner['name']} to {', '.join(each)}, which is none of its addresses",
                    WARNING,
                )
            ]
        break
    return []


def _shared(hosts: Sequence[Host]) -> Findings:
    """Addresses with a port that two hosts give as theirs."""
    owners: dict[tuple[str, int, str], list[str]] = {}
    for host in hosts:
        for each, name in needs(host, "address"):
            owners.setdefault((str(name), int(each["port"]), each["address_by"]), []).append(host["name"])
    return [
        (found, f"have one address, {name}, port {port} ({by})", FAULT)
        for (name, port, by), found in owners.items()
        if len(found) > 1
    ]


def cluster_id(hosts: Sequence[Host]) -> str | None:
    """Returns the id of the cluster: ZooKeeper's, else that of most data; "" if ZooKeeper has none, None if unknown."""
    reached = [host["seen"] for host in hosts if is_reached(host)]
    said = [seen["cluster_id"] for seen in reached if seen.get("cluster_id") is not None]
    if said:
        return str(max(said, key=len))
    count = Counter(
        told["cluster_id"] for seen in reached for told in seen["data"].values() if told["cluster_id"]
    )
    return count.most_common(1)[0][0] if count else None


def members(hosts: Sequence[Host]) -> set[int]:
    """Returns the ids of the ZooKeeper servers that count on each other, as hosts are configured now."""
    seen = [host["seen"].get("zookeeper") or {} for host in hosts if is_reached(host)]
    return {int(number) for each in seen for number in each.get("members", ())}


def _is_address(name: Any) -> bool:
    try:
        ipaddress.ip_address(str(name).strip("[]"))
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
