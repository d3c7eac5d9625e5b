# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role `preflight`: what a deployment would meet, as one table. The checks themselves are in
module_utils/preflight_host.py and preflight_cluster.py.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml  # type: ignore[import-untyped]
from ansible.errors import AnsibleError
from ansible_collections.landline.cluster.plugins.filter.broker_listeners import broker_ports
from ansible_collections.landline.cluster.plugins.module_utils import preflight_cluster as cluster
from ansible_collections.landline.cluster.plugins.module_utils import preflight_host as one
from ansible_collections.landline.cluster.plugins.module_utils.preflight_types import (
    mistyped,
    options_with_aliases,
)
from jinja2 import Undefined
from jinja2.exceptions import UndefinedError

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
# The roles, and the groups whose hosts get them.
_BY_ROLE = {
    "broker": {"brokers"},
    "common": {"brokers"},
    "journal_shipper": {"brokers"},
    "preflight": set(GROUPS),
    "prometheus": {"prometheus"},
    "spark": {"spark_master", "spark_workers"},
    "zookeeper": {"zookeeper"},
}


T = TypeVar("T")


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
        "unsettled": [
            *told.get("preflight_mistyped", {}).get(name, ()),
            *told.get("preflight_unsettled", []),
        ],
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
    of_cluster, members = cluster.cluster_id(hosts), cluster.members(hosts)
    between = {
        "groups": partial(cluster.groups, groups, GROUPS, _required(hosts, groups)),
        "variables": partial(cluster.variables, hosts, known),
        "ids": partial(cluster.ids, hosts),
        "names": partial(cluster.names, hosts),
    }
    found = [
        Finding(check, tuple(names), what, is_warning)
        for check, judge in between.items()
        for names, what, is_warning in _judged(judge, lambda words: ([], words, one.FAULT))
    ]
    for host in hosts:
        checks: dict[str, Callable[[], one.Faults]] = {
            "reach": partial(one.reach, host, some_run),
            "settings": partial(one.settings, host),
            "ports": partial(one.ports, host),
        }
        if one.is_reached(host):
            checks |= {
                "mounts": partial(one.mounts, host),
                "space": partial(one.space, host),
                "memory": partial(one.memory, host),
                "clock": partial(one.clock, host, now),
                "time_sync": partial(one.time_sync, host),
                "versions": partial(one.versions, host),
                "data": partial(one.data, host, of_cluster, members),
            }
        found += [
            Finding(check, (host["name"],), what, is_warning)
            for check, judge in checks.items()
            for what, is_warning in _judged(judge, lambda words: (words, one.FAULT))
        ]
    return [
        {**each._asdict(), "hosts": list(each.hosts)} for each in _together(map(_allowed_by(hosts), found))
    ]


def _required(hosts: Iterable[Mapping[str, Any]], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups without which there is no cluster: ZooKeeper's, unless another ensemble is given."""
    brokers = set(groups.get("brokers", ()))
    elsewhere = [set(_ELSEWHERE) & set(host["variables"]) for host in hosts if host["name"] in brokers]
    return ["brokers"] if elsewhere and all(elsewhere) else ["brokers", "zookeeper"]


def _judged(judge: Callable[[], list[T]], fault: Callable[[str], T]) -> list[T]:
    """What one check found. A value that it cannot read is a fault of that check, and hides nothing of the others."""
    try:
        return judge()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [fault(f"could not be checked: {error}")]


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


def preflight_lacking(
    groups: Mapping[str, Sequence[str]], needed: Iterable[str], sources: Iterable[str]
) -> str:
    """Returns what an inventory lacks for a run that is for the needed groups; "" if each has a host."""
    missing = [name for name in needed if not groups.get(name)]
    if not missing:
        return ""
    others = [name for name, hosts in groups.items() if hosts and name not in (*GROUPS, "all", "ungrouped")]
    words = [_missing(name, cluster.like(name, others)) for name in missing]
    if not groups.get("all"):
        words = ["The inventory has no hosts."]
    read = ", ".join(map(_source, sources)) or "nowhere"
    return " ".join([*words, f"It was read from {read}. Nothing was done."])


def _missing(name: str, like: str) -> str:
    return f"The inventory has no host in the group {name}{f': is it {like}?' if like else '.'}"


def _source(source: str) -> str:
    """A source of an inventory: a file, a directory, or names with commas."""
    is_there = "," in source or Path(source).exists()
    return source if is_there else f"{source}, which is not there"


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


def preflight_mistyped(
    names: Iterable[str], variables: Mapping[str, Mapping[str, Any]], roles: str
) -> dict[str, list[dict[str, str]]]:
    """Returns by host which of its variables are of the wrong type, each with the role; `roles` is their directory."""
    options = {role: _options(Path(roles, role)) for role in _BY_ROLE}
    return {name: list(_mistyped(variables[name], options)) for name in names}


def preflight_type_findings(
    names: Iterable[str], variables: Mapping[str, Mapping[str, Any]], roles: str
) -> list[dict[str, Any]]:
    """Returns what `preflight_findings` does of variables of the wrong type, where nothing else is looked at."""
    hosts: list[dict[str, Any]] = [
        {
            "name": name,
            "unsettled": told,
            "needs": [],
            "seen": {},
            "settings": {"allow": _list(variables[name], "preflight_allow")},
        }
        for name, told in preflight_mistyped(names, variables, roles).items()
    ]
    found = [
        Finding("settings", (host["name"],), what, is_warning)
        for host in hosts
        for what, is_warning in one.settings(host)
    ]
    return [
        {**each._asdict(), "hosts": list(each.hosts)} for each in _together(map(_allowed_by(hosts), found))
    ]


def _list(told: Mapping[str, Any], name: str) -> list[Any]:
    """A host's variable that is to be a list; empty if it is none."""
    with contextlib.suppress(AnsibleError, UndefinedError):
        if name in told and isinstance(value := told[name], list):
            return value
    return []


def _mistyped(
    told: Mapping[str, Any], options: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> Iterator[dict[str, str]]:
    groups = set(told.get("group_names", ()))
    for role, its in options.items():
        for name in its if groups & _BY_ROLE[role] else ():
            # One that goes by a role's own variable, or by none, is known within the role only.
            with contextlib.suppress(AnsibleError, UndefinedError):
                if name in told and not isinstance(value := told[name], Undefined):
                    yield from ({"role": role, "msg": what} for what in mistyped(name, value, its[name]))


def _options(role: Path) -> dict[str, Mapping[str, Any]]:
    """The options of a role by their names in an inventory."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    return options_with_aliases(specs["main"]["options"], defaults)


def preflight_directories(
    paths: Iterable[str], purpose: str, free_mb: int, set_by: str
) -> list[dict[str, Any]]:
    """Returns directories as the checks take them."""
    return [
        {"path": str(path).strip(), "for": purpose, "mb": int(free_mb), "set_by": set_by} for path in paths
    ]


def preflight_of_brokers(brokers: Sequence[Mapping[str, Any]], free_mb: int, unit_dir: str) -> dict[str, Any]:
    """Returns what the brokers of broker_instances need: ids, data directories, ports. `unit_dir` has their units."""
    data_dirs = [[path.strip() for path in each["properties"]["log.dirs"].split(",")] for each in brokers]
    return {
        "ids": [each["id"] for each in brokers],
        "brokers": [{"id": b["id"], "data_dirs": dirs} for b, dirs in zip(brokers, data_dirs, strict=True)],
        "disks": {
            "directories": [path for each in data_dirs for path in each],
            "units": [f"{unit_dir}/{each['unit']}" for each in brokers],
            "set_by": "broker_data_dirs",
        },
        "directories": preflight_directories(
            [path for each in data_dirs for path in each], "the data of brokers", free_mb, "broker_data_dir"
        ),
        "ports": [{**port, "unit": _UNITS} for port in broker_ports(brokers)],
    }


def preflight_archives(
    archives: Mapping[str, Mapping[str, Any]], directory: str
) -> dict[str, dict[str, Any]]:
    """Returns the archives that a release's manifest names, by platform, and whether they are on this machine."""
    paths = {platform: Path(directory, str(each.get("file", ""))) for platform, each in archives.items()}
    return {platform: {"path": str(path), "is_there": path.is_file()} for platform, path in paths.items()}


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
            "preflight_lacking": preflight_lacking,
            "preflight_table": preflight_table,
            "preflight_known": preflight_known,
            "preflight_directories": preflight_directories,
            "preflight_mistyped": preflight_mistyped,
            "preflight_type_findings": preflight_type_findings,
            "preflight_of_brokers": preflight_of_brokers,
            "preflight_archives": preflight_archives,
            "preflight_megabytes": preflight_megabytes,
        }
