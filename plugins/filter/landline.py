# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the broker role: they turn a host's settings into its broker instances, as plain data."""

from __future__ import annotations

import hashlib
import ipaddress
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.landline.cluster.plugins.filter.broker_security import (
    PROTOCOLS,
    http_properties,
    secure_properties,
)
from ansible_collections.landline.cluster.plugins.module_utils.addresses import host_port, service_address
from ansible_collections.landline.cluster.plugins.module_utils.live_keys import is_live

CLIENTS = "PLAINTEXT"
# Every key of the broker whose value is a password or a private key has one of these words in its name.
_SECRET = re.compile(r"password|secret|digest|jaas|keystore\.key|master\.key|certificate")

# What each broker has by a variable: units, files and whoever asks its HTTP port go by that.
_BY_VARIABLE = {
    "broker.id": "broker_first_id",
    "landline.http.host": "broker_http_host",
    "landline.http.port": "broker_http_port",
}


def broker_instances(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the brokers of one host: the k-th has id `first_id` + k, and its ports are shifted by k
    * `port_step`.

    Each has its unit, files, ports, `data_dirs`, `properties` and `fingerprint`. `properties` are by Kafka's
    keys; the user's, in `settings["properties"]`, take precedence, and before them those of this broker alone, in
    `settings["properties_by_id"]`; `has_secrets` says whether a password may be among them. The `fingerprint`
    changes with everything that requires a restart of the process, which are not the keys that a running broker
    takes up. It has the `listeners` whose port in `ports` is not 0, and uses the listener `between` for other
    brokers. `url` is that of its HTTP port, when the `properties` are in force.
    """
    return [_instance(settings, k) for k in range(int(settings["count"]))]


def broker_without_properties(brokers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns brokers for a module that does not need their properties, which may have passwords."""
    return [{key: value for key, value in broker.items() if key != "properties"} for broker in brokers]


def _instance(settings: Mapping[str, Any], k: int) -> dict[str, Any]:
    broker_id = int(settings["first_id"]) + k
    step = int(settings["port_step"]) * k
    port, http_port = int(settings["ports"][CLIENTS]) + step, int(settings["http_port"]) + step
    instance = {
        "id": broker_id,
        "unit": f"landline-broker@{broker_id}.service",
        "config": f"{settings['config_dir']}/broker-{broker_id}.properties",
        "environment": f"{settings['config_dir']}/broker-{broker_id}.env",
        "port": port,
        "http_port": http_port,
        "url": f"{_scheme(settings['http_tls'])}://{host_port(settings['http_address'], http_port)}",
    }
    own: dict[str, Any] = {
        "broker.id": broker_id,
        "log.dirs": [f"{each}/broker-{broker_id}" for each in settings["data_dirs"]],
        "landline.http.port": http_port,
        **_listeners(settings, step),
        **http_properties(settings["config_dir"], settings["http_tls"], settings["has_http_tokens"]),
    }
    if settings["http_host"]:
        own["landline.http.host"] = str(settings["http_host"]).strip("[]")
    by_hand = {**settings["properties"], **_of_broker(settings, broker_id)}
    properties = {key: text(value) for key, value in {**own, **by_hand}.items()}
    # A broker refuses a certificate for other names until it is restarted.
    names = settings["certificate_names"] if "ssl.keystore.location" in properties else ()
    fixed = {key: value for key, value in properties.items() if not is_live(key)}
    started_with = json.dumps([settings["release"], settings["unit"], fixed, *names], sort_keys=True)
    digest = hashlib.sha256(started_with.encode()).hexdigest()[:16]
    return {
        **instance,
        "data_dirs": [each.strip() for each in properties["log.dirs"].split(",") if each.strip()],
        "properties": dict(sorted(properties.items())),
        "has_secrets": any(_SECRET.search(key) for key in properties),
        "fingerprint": digest,
    }


def broker_keys_by_variable(
    properties: Mapping[str, Any], properties_by_id: Mapping[Any, Mapping[str, Any]]
) -> list[str]:
    """Returns what is wrong with the user's properties: keys that each broker has by a variable, with that variable."""
    return [
        *_by_variable("broker_properties", properties),
        *(
            words
            for broker_id, own in properties_by_id.items()
            for words in _by_variable(f"broker_properties_by_id of {broker_id}", own or {})
        ),
    ]


def _by_variable(where: str, properties: Mapping[str, Any]) -> Iterator[str]:
    """A key that is null is left out, so that it does no harm."""
    for key, variable in _BY_VARIABLE.items():
        if properties.get(key) is not None:
            yield f"{where} sets {key}={text(properties[key])}: take it away, and set {variable}"


def broker_shared_dirs(brokers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns descriptions of the directories that two brokers of a host, from broker_instances, would have, and of
    those that lie in another's.
    """
    owners: dict[str, dict[int, None]] = {}
    for broker in brokers:
        for path in broker["data_dirs"]:
            owners.setdefault(str(PurePosixPath(path)), {})[int(broker["id"])] = None
    shared = [
        f"log.dirs has {path} for the brokers {' and '.join(map(str, ids))} of this host: give each its own, by "
        "broker_properties_by_id; or set broker_data_dirs instead, where each broker has a directory of its own"
        for path, ids in owners.items()
        if len(ids) > 1
    ]
    nested = [
        f"log.dirs has {outer} for broker {min(owners[outer])} of this host, and {inner} in it for broker "
        f"{min(owners[inner])}: a broker takes what lies in its directory for a partition. Give each a place of its own"
        for outer, inner in itertools.permutations(owners, 2)
        if PurePosixPath(outer) in PurePosixPath(inner).parents
    ]
    return shared + nested


def _of_broker(settings: Mapping[str, Any], broker_id: int) -> Mapping[str, Any]:
    """The user's properties of one broker. YAML makes numbers of the ids, JSON texts."""
    return next(
        (found for key, found in settings["properties_by_id"].items() if str(key) == str(broker_id)), {}
    )


def _listeners(settings: Mapping[str, Any], step: int) -> dict[str, str]:
    """The properties of a broker's listeners."""
    ports = {name: int(port) for name, port in settings["ports"].items() if int(port)}
    names = [name for name in settings["listeners"] if name in ports]

    def at(host: object) -> str:
        return ",".join(f"{name}://{host_port(host, ports[name] + step)}" for name in names)

    found = {
        "listeners": at(settings["listen_host"]),
        "advertised.listeners": at(settings["advertised_host"]),
    }
    if names != [CLIENTS]:
        found["listener.security.protocol.map"] = ",".join(f"{name}:{PROTOCOLS[name]}" for name in names)
        found["inter.broker.listener.name"] = settings["between"]
    return found | secure_properties(names, settings["config_dir"], settings["super_users"])


def _scheme(tls: bool) -> str:
    return "https" if tls else "http"


def broker_urls(
    hosts: Iterable[Mapping[str, Any]], http_port: int, port_step: int, tls: bool = False
) -> list[str]:
    """Returns the HTTP addresses of all brokers of all hosts; takes the hosts' inventory variables."""
    return [
        f"{_scheme(tls)}://"
        + host_port(
            host.get("broker_http_host") or host.get("broker_advertised_host") or service_address(host),
            int(host.get("broker_http_port", http_port)) + k * int(host.get("broker_port_step", port_step)),
        )
        for host in hosts
        for k in range(int(host.get("broker_count", host.get("brokers_per_host", 1))))
    ]


def address_or_nothing(host: object) -> str:
    """Returns `host` if it is an address that can be listened on, without brackets, else "".

    A name may resolve to 127.0.1.1 on its own host, where no other host could connect.
    """
    written = str(host).removeprefix("[").removesuffix("]")
    try:
        found = ipaddress.ip_address(written)
    except ValueError:
        return ""
    return "" if found.is_unspecified else written


def any_address(host: object) -> str:
    """Returns the address of all interfaces in the family of `host`: that of IPv6, which takes IPv4 as well, if it
    is an IPv6 address, else that of IPv4.
    """
    return "::" if ":" in str(host) else "0.0.0.0"  # noqa: S104 - what is to be listened on


def broker_ids(hosts: Iterable[Mapping[str, Any]]) -> dict[int, list[str]]:
    """Returns the hosts of each broker id, of which there should be one; takes the hosts'
    inventory variables.

    Without `broker_first_id` the id is the role's default: the host's place in the group, times its number
    of brokers.
    """
    owners: dict[int, list[str]] = {}
    for place, host in enumerate(hosts):
        count = int(host.get("broker_count", host.get("brokers_per_host", 1)))
        first = int(host.get("broker_first_id", place * count + 1))
        for broker_id in range(first, first + count):
            owners.setdefault(broker_id, []).append(str(host["inventory_hostname"]))
    return owners


def broker_id_clashes(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns descriptions of the ids that more than one broker would have; takes the hosts'
    inventory variables.
    """
    return [
        f"broker {broker_id} on {' and '.join(names)}"
        for broker_id, names in sorted(broker_ids(hosts).items())
        if len(names) > 1
    ]


def zookeeper_connect(hosts: Iterable[Mapping[str, Any]], port: int, chroot: str = "") -> str:
    """Returns Kafka's zookeeper.connect for these servers; takes the hosts' inventory variables."""
    return (
        ",".join(host_port(host.get("zookeeper_address") or service_address(host), port) for host in hosts)
        + chroot
    )


def text(value: object) -> str:
    """Returns a value as written in Kafka's properties files: true and false, lists joined by commas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(text(item) for item in value)
    return str(value)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "broker_instances": broker_instances,
            "broker_without_properties": broker_without_properties,
            "broker_keys_by_variable": broker_keys_by_variable,
            "broker_shared_dirs": broker_shared_dirs,
            "broker_urls": broker_urls,
            "address_or_nothing": address_or_nothing,
            "any_address": any_address,
            "broker_ids": broker_ids,
            "broker_id_clashes": broker_id_clashes,
            "service_address": service_address,
            "zookeeper_connect": zookeeper_connect,
            "host_port": host_port,
        }
