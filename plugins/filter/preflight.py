# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role `preflight`: what a deployment would meet, as one table. The checks themselves are in
module_utils/preflight_host.py and preflight_cluster.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from ansible_collections.landline.cluster.plugins.filter.broker_listeners import broker_ports
from ansible_collections.landline.cluster.plugins.module_utils import preflight_cluster as cluster
from ansible_collections.landline.cluster.plugins.module_utils import preflight_host as one

CHECKS = (
    "groups",
    "variables",
    "reach",
    "settings",
    "ids",
    "ports",
    "mounts",
    "space",
    "memory",
    "clock",
    "time_sync",
    "names",
    "versions",
    "data",
)
GROUPS = ("brokers", "zookeeper", "spark_master", "spark_workers", "prometheus")
# Of all releases: the k-th broker of a host may get the port that another broker still has.
_UNITS = "landline-broker@"
_NEEDS = ("broker_needs", "zookeeper_needs", "spark_needs")
_ELSEWHERE = ("broker_zookeeper_connect",)


class Finding(NamedTuple):
    """One line of the table. A warning stops nothing."""

    check: str
    hosts: tuple[str, ...]
    what: str
    is_warning: bool


def preflight_is_ours(groups: Iterable[str]) -> bool:
    """Returns whether a host of these groups gets anything from the playbooks. Others of the inventory are somebody
    else's: what they run, and whether they are reached, is no fault of a deployment.
    """
    return not set(GROUPS).isdisjoint(groups)


def preflight_needs(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what the roles of a host need of it, from its variables."""
    return [told[name] for name in _NEEDS if name in told]


def preflight_hosts(names: Iterable[str], variables: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the hosts as the checks take them, from their variables."""
    return [_host(name, variables[name]) for name in names]


def _host(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    seen = told.get("preflight_seen") or {"failed": True, "msg": "not looked at"}
    return {
        "name": name,
        "groups": list(told.get("group_names", [])),
        "variables": [each for each in told if each not in _NEEDS],
        "settings": dict(told.get("preflight_settings", {})),
        "needs": preflight_needs(told),
        "unsettled": list(told.get("preflight_unsettled", [])),
        "seen": seen,
    }


def preflight_findings(
    hosts: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[str]], known: Sequence[str], now: float
) -> list[dict[str, Any]]:
    """Returns all faults and warnings, each as a dict of a `Finding`. Of hosts that are not Landline's there are none.

    `known` are the roles' variables; `now` is this machine's clock.
    """
    hosts = [host for host in hosts if preflight_is_ours(host["groups"])]
    some_run = any(one.has_brokers(host) for host in hosts)
    of_cluster = cluster.cluster_id(hosts)
    found = [
        *(
            Finding("groups", *_between(each))
            for each in cluster.groups(groups, GROUPS, _required(hosts, groups))
        ),
        *(Finding("variables", *_between(each)) for each in cluster.variables(hosts, known)),
        *(Finding("ids", *_between(each)) for each in cluster.ids(hosts)),
        *(Finding("names", *_between(each)) for each in cluster.names(hosts)),
    ]
    for host in hosts:
        checks = {
            "reach": one.reach(host, some_run),
            "settings": one.settings(host),
            "ports": one.ports(host),
        }
        if one.is_reached(host):
            checks |= {
                "mounts": one.mounts(host),
                "space": one.space(host),
                "memory": one.memory(host),
                "clock": one.clock(host, now),
                "time_sync": one.time_sync(host),
                "versions": one.versions(host),
                "data": one.data(host, of_cluster),
            }
        found += [
            Finding(check, (host["name"],), what, is_warning)
            for check, each in checks.items()
            for what, is_warning in each
        ]
    return [
        {**each._asdict(), "hosts": list(each.hosts)} for each in _together(map(_allowed_by(hosts), found))
    ]


def _required(hosts: Iterable[Mapping[str, Any]], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups without which there is no cluster: ZooKeeper's, unless another ensemble is given."""
    brokers = set(groups.get("brokers", ()))
    elsewhere = [set(_ELSEWHERE) & set(host["variables"]) for host in hosts if host["name"] in brokers]
    return ["brokers"] if elsewhere and all(elsewhere) else ["brokers", "zookeeper"]


def _between(found: tuple[Sequence[str], str, bool]) -> tuple[tuple[str, ...], str, bool]:
    hosts, what, is_warning = found
    return tuple(hosts), what, is_warning


def _allowed_by(hosts: Iterable[Mapping[str, Any]]) -> Any:
    """A fault of a check that all its hosts allow is a warning."""
    allowed = {host["name"]: set(host["settings"].get("allow", ())) for host in hosts}

    def decide(found: Finding) -> Finding:
        of_hosts = found.hosts or tuple(allowed)
        if of_hosts and all(found.check in allowed[name] for name in of_hosts):
            return found._replace(is_warning=True)
        return found

    return decide


def _together(findings: Iterable[Finding]) -> list[Finding]:
    """What several hosts have in common is one line, in the order of the checks."""
    hosts: dict[tuple[str, str, bool], list[str]] = {}
    for each in findings:
        hosts.setdefault((each.check, each.what, each.is_warning), []).extend(each.hosts)
    merged = [
        Finding(check, tuple(dict.fromkeys(names)), what, is_warning)
        for (check, what, is_warning), names in hosts.items()
    ]
    return sorted(merged, key=lambda each: CHECKS.index(each.check))


def preflight_table(findings: Iterable[Mapping[str, Any]], warnings: bool) -> list[str]:
    """Returns the faults, or the warnings, as lines of a table; none if there are none."""
    chosen = [found for each in findings if (found := Finding(**each)).is_warning == warnings]
    rows = [
        ("check", "hosts", "what is wrong"),
        *((f.check, ", ".join(f.hosts) or "all", f.what) for f in chosen),
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{check:{widths[0]}}  {hosts:{widths[1]}}  {what}" for check, hosts, what in rows]
    return lines if chosen else []


def preflight_known(roles: str) -> list[str]:
    """Returns the variables of all roles in a directory, by their argument specs, and those that plays set."""
    found: set[str] = set()
    for path in Path(roles).glob("*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
            found |= set(spec.get("options", {}))
    for path in Path(roles).glob("*/defaults/main.yml"):
        found |= _named_in(path.read_text())
    return sorted(found)


def _named_in(text: str) -> set[str]:
    """The variables of the inventory that defaults go by, as landline_version."""
    return set(re.findall(r"\b((?:landline|brokers|zookeeper)_[a-z_0-9]+)\b", text))


def preflight_directories(
    paths: Iterable[str], purpose: str, free_mb: int, set_by: str
) -> list[dict[str, Any]]:
    """Returns directories as the checks take them."""
    return [
        {"path": str(path).strip(), "for": purpose, "mb": int(free_mb), "set_by": set_by} for path in paths
    ]


def preflight_of_brokers(brokers: Sequence[Mapping[str, Any]], free_mb: int) -> dict[str, Any]:
    """Returns what the brokers of broker_instances need: their ids, data directories and ports."""
    data_dirs = [[path.strip() for path in each["properties"]["log.dirs"].split(",")] for each in brokers]
    return {
        "ids": [each["id"] for each in brokers],
        "brokers": [{"id": b["id"], "data_dirs": dirs} for b, dirs in zip(brokers, data_dirs, strict=True)],
        "directories": preflight_directories(
            [path for each in data_dirs for path in each], "the data of brokers", free_mb, "broker_data_dir"
        ),
        "ports": [{**port, "unit": _UNITS} for port in broker_ports(brokers)],
    }


def preflight_megabytes(memory: str) -> int:
    """Returns Spark's way to write memory, as 2g, in megabytes; without a unit it is megabytes."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", str(memory).strip().lower())
    if found is None:
        raise ValueError(f"{memory!r} is no amount of memory: 512m and 2g are")
    return int(int(found[1]) * {"k": 1 / 1024, "m": 1, "": 1, "g": 1024, "t": 1024**2}[found[2]])


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "preflight_is_ours": preflight_is_ours,
            "preflight_needs": preflight_needs,
            "preflight_hosts": preflight_hosts,
            "preflight_findings": preflight_findings,
            "preflight_table": preflight_table,
            "preflight_known": preflight_known,
            "preflight_directories": preflight_directories,
            "preflight_of_brokers": preflight_of_brokers,
            "preflight_megabytes": preflight_megabytes,
        }
