# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Turns an Apache Kafka broker's server.properties into the inventory's variables, or says why not. Pure, but for the
look at the inventory's own files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from ansible_collections.landline.cluster.plugins.filter.hidden_files import hidden_files

KAFKA_PORT = 9092
DEFAULT_LISTENERS = f"PLAINTEXT://:{KAFKA_PORT}"
PROTOCOL = "3.9"
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
# Below these the broker's unit sees nothing of the host (PrivateTmp, ProtectHome), or what a boot takes away.
_HIDDEN = ("/tmp", "/var/tmp", "/home", "/root", "/run")  # noqa: S108
# Keys that the role would set where Kafka's file does not. Left out, they have Kafka's defaults, as before.
ROLES_OWN = (
    "broker.rack",
    "default.replication.factor",
    "min.insync.replicas",
    "landline.eligible.leader.replicas.enable",
    "offsets.topic.replication.factor",
    "landline.lifecycle.enable",
    "zookeeper.session.timeout.ms",
)
# What begins a template of Ansible's, also in the middle of a password.
_TEMPLATE = re.compile(r"\A#jinja2:|\{[{%#]")
# By which names Ansible takes a file for a host's variables, unless there is a directory of the host's name.
_VARIABLES = ("", ".yml", ".yaml", ".json")
# Said by variables of their own, or of no use to Landline.
_ELSEWHERE = ("broker.id", "log.dir")


def migrated_variables(
    kafka: Mapping[str, Any], registered: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Returns the host's variables with which the role runs Landline in the broker's place.

    `kafka` is the result of kafka_server_info, `registered` what zookeeper_quorum_info found: without
    advertised.listeners in the file, clients are told to come where they are told now.
    """
    found = dict(kafka["properties"])
    broker_id = broker_id_of(kafka)
    listeners = found.get("listeners") or DEFAULT_LISTENERS
    advertised = found.get("advertised.listeners") or ",".join(
        (registered or {}).get(broker_id, {}).get("endpoints", [])
    )
    properties: dict[str, Any] = {key: None for key in ROLES_OWN if key not in found}
    properties |= {key: value for key, value in sorted(found.items()) if key not in _ELSEWHERE}
    properties |= {
        "listeners": listeners,
        "advertised.listeners": advertised or listeners,
        "log.dirs": ",".join(kafka["log_dirs"]),
    }
    port = re.search(r"PLAINTEXT://[^,]*:(\d+)", listeners)
    return {
        "broker_first_id": int(broker_id),
        "broker_kafka_port": int(port[1]) if port else KAFKA_PORT,
        "broker_count": 1,
        "broker_internal_port": 0,
        "broker_security": "none",
        "broker_http_tls": False,
        "broker_zookeeper_connect": found["zookeeper.connect"],
        "broker_properties": properties,
    }


def broker_id_of(kafka: Mapping[str, Any]) -> str:
    """Returns the broker's id, from the file or its data; empty if neither says it."""
    told = str(kafka["properties"].get("broker.id", "-1"))
    if told.isdecimal():
        return str(int(told))
    return next((meta["broker.id"] for meta in kafka["metas"].values() if "broker.id" in meta), "")


def migration_doubts(kafka: Mapping[str, Any]) -> list[str]:
    """Returns why a broker cannot be migrated, each with the key's name. `landline check-config` judges the rest."""
    if kafka["wrong"]:
        return [str(kafka["wrong"])]
    found, at = kafka["properties"], kafka["config"]
    doubts = [
        f"{at}: {key}: a KRaft cluster cannot be migrated, only one with ZooKeeper"
        for key in ("process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers")
        if found.get(key)
    ]
    if not found.get("zookeeper.connect"):
        doubts.append(f"{at}: zookeeper.connect is missing")
    version = str(found.get("inter.broker.protocol.version", PROTOCOL))
    if not (version == PROTOCOL or version.startswith(f"{PROTOCOL}-")):
        doubts.append(
            f"{at}: inter.broker.protocol.version={version}: first let all brokers speak {PROTOCOL}"
        )
    authorizer = str(found.get("authorizer.class.name", "")).strip()
    if authorizer not in {"", AUTHORIZER}:
        # For Landline it may be a class of Python, so that `landline check-config` has no doubt.
        doubts.append(
            f"{at}: authorizer.class.name={authorizer}: of Kafka's classes Landline has only {AUTHORIZER}"
        )
    doubts += [
        f"{at}: {each} is a file of which a service sees nothing: move it first, for example to /etc/landline"
        for each in hidden_files(found)
    ]
    return doubts + _doubts_of_dirs(kafka)


def _doubts_of_dirs(kafka: Mapping[str, Any]) -> list[str]:
    at, broker_id = kafka["config"], broker_id_of(kafka)
    doubts = [
        f"{at}: log.dirs: {each} is below {top}, of which a service sees nothing: move it first"
        for each in kafka["log_dirs"]
        for top in _HIDDEN
        if f"{each}/".startswith(f"{top}/")
    ]
    doubts += [
        f"{at}: log.dirs: {each} is not absolute" for each in kafka["log_dirs"] if not each.startswith("/")
    ]
    doubts += [
        f"{at}: log.dirs: {each} has no meta.properties: has a broker run there?"
        for each in kafka["log_dirs"]
        if each not in kafka["metas"]
    ]
    for each, meta in kafka["metas"].items():
        if meta.get("version") != "0":
            doubts.append(f"{each}/meta.properties: version={meta.get('version')}, which is KRaft's")
        elif meta.get("broker.id") != broker_id:
            doubts.append(
                f"{each}/meta.properties: broker.id={meta.get('broker.id')}, and {at} has {broker_id}"
            )
    return doubts


def migration_clashes(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns what the brokers of several hosts, each with `broker_kafka_seen`, have that only one cluster's would."""
    seen = [(str(host["inventory_hostname"]), host["broker_kafka_seen"]) for host in hosts]
    by_id: dict[str, list[str]] = {}
    clusters: dict[str, list[str]] = {}
    for name, kafka in seen:
        by_id.setdefault(broker_id_of(kafka), []).append(name)
        for cluster_id in {meta.get("cluster.id", "") for meta in kafka["metas"].values()}:
            clusters.setdefault(cluster_id, []).append(name)
    clashes = [
        f"broker {each} is on {' and '.join(names)}" for each, names in by_id.items() if len(names) > 1
    ]
    if len(clusters) > 1:
        told = "; ".join(f"{each or 'none'}: {', '.join(names)}" for each, names in sorted(clusters.items()))
        clashes.append(f"the brokers are of several clusters: {told}")
    return clashes


def migrate_does(host: Mapping[str, Any], to: str) -> str:
    """Returns what a host is to do, from its variables: `nothing`, if it runs what it is to run, or else its place in
    the order: `broken`, `others`, `controller`.
    """
    kafka = host["broker_kafka_seen"]
    if to == "landline":
        # The link is made last: without it something is left to do.
        done = kafka["serving"] and kafka["switched"] and not kafka["active"] and not kafka["enabled"]
    else:
        done = kafka["active"] and kafka["enabled"] and not kafka["serving"]
    if done:
        return "nothing"
    looked = host["broker_quorum_looked"]
    broker_id = broker_id_of(kafka)
    if broker_id not in (looked.get("registered") or {}):
        return "broken"
    return "controller" if str(looked.get("controller")) == broker_id else "others"


def migration_hides(directory: str, name: str) -> list[str]:
    """Returns the doubts about a host's own variables: beside the directory that gets its settings, Ansible reads no
    file of the host's name.
    """
    files = [each for suffix in _VARIABLES if (each := Path(directory, f"{name}{suffix}")).is_file()]
    own = Path(directory, name)
    return [
        f"{each}: Ansible does not read it beside {own}/, which gets the settings of {name}: move it into that "
        f"directory, for example to {own}/main.yml"
        for each in files
    ]


class _Text(str):
    """A text that is no template, whatever is in it."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes variables as Ansible is to read them."""


_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style="'"))


def migrated_yaml(variables: Mapping[str, Any]) -> str:
    """Returns the variables as a file of the inventory. Ansible would take some texts for templates, such as a password
    with C({#): they are tagged C(!unsafe).
    """
    return str(
        yaml.dump(
            _plain(variables),
            Dumper=_Dumper,
            indent=2,
            width=200,
            allow_unicode=True,
            default_flow_style=False,
        )
    )


def _plain(value: Any) -> Any:
    """The value without Ansible's own types, which the dumper does not know."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, str):
        text = str(value)
        return _Text(text) if _TEMPLATE.search(text) else text
    if value is None or isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "migrated_variables": migrated_variables,
            "migration_doubts": migration_doubts,
            "migration_clashes": migration_clashes,
            "migrate_does": migrate_does,
            "migrated_yaml": migrated_yaml,
            "migration_hides": migration_hides,
            "migrate_broker_id": broker_id_of,
        }
