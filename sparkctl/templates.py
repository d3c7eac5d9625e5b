"""Evaluates templates in the output of ``ansible-inventory --list``, which leaves them as they are written.

By Ansible's own engine, and only in variables that are read here: others may run programs or need a vault's password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_READ = ("ansible_", "broker", "landline_", "spark_", "zookeeper_")


def evaluated(listing: Mapping[str, Any]) -> Mapping[str, Any]:
    """The listing with the values that templates have for each host. What cannot be evaluated stays as written, such
    as what needs a role's default.
    """
    hosts: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    if not any(
        _is_read(name) and _has_template(value) for found in hosts.values() for name, value in found.items()
    ):
        return listing
    groups = {name: list(each.get("hosts", [])) for name, each in listing.items() if name != "_meta"}
    values = {host: _of_host(host, variables, groups, hosts) for host, variables in hosts.items()}
    return {**listing, "_meta": {**listing["_meta"], "hostvars": values}}


def _of_host(
    host: str, variables: Mapping[str, Any], groups: Mapping[str, Any], hosts: Mapping[str, Any]
) -> dict[str, Any]:
    if not any(_is_read(name) and _has_template(value) for name, value in variables.items()):
        return dict(variables)
    from ansible.errors import AnsibleError
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    known = {**_trusted(variables), "groups": groups, "hostvars": _trusted(hosts), "inventory_hostname": host}
    templar = Templar(loader=DataLoader(), variables=known)
    found = dict(variables)
    for name, value in variables.items():
        if _is_read(name) and _has_template(value):
            try:
                found[name] = templar.template(_trusted(value))
            except AnsibleError:
                continue
    return found


def _is_read(name: str) -> bool:
    return name.startswith(_READ)


def _has_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_template, value.values()))
    if isinstance(value, list):
        return any(map(_has_template, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _trusted(value: Any) -> Any:
    """The value as Ansible has it from a file of the user's: it evaluates no others."""
    from ansible.template import trust_as_template

    if isinstance(value, Mapping):
        return {key: _trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_trusted(each) for each in value]
    return trust_as_template(value) if isinstance(value, str) else value
