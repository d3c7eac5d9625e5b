# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Decides how a cluster's listeners are secured, and which steps lead there from what its brokers have. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.addresses import host_port, service_address

# The listeners that the role makes, in the order of the properties: the protocol, and the setting of the port.
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "BROKER": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "BROKER_SSL": "SSL",
}
# The clients' listener of each value of landline_security.
CLIENTS = {"none": "PLAINTEXT", "tls": "SSL", "sasl_ssl": "SASL_SSL"}
BETWEEN, BETWEEN_SECURE = "BROKER", "BROKER_SSL"
# Clients of these have no name of their own: they are User:ANONYMOUS.
NAMELESS = ("PLAINTEXT", "BROKER", "SSL")
ANONYMOUS = "User:ANONYMOUS"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
# The file of the HTTP ports' tokens, in the directory of the properties files.
HTTP_TOKENS = "http-tokens"
_ADVERTISED, _SPEAKS_BY = "advertised.listeners=", "inter.broker.listener.name="


def broker_wanted(mode: str, also: Iterable[str], own_port: int | str) -> dict[str, Any]:
    """Returns the `listeners` that brokers are to have in the end, and `between`, the one by which they speak to
    each other.

    `mode` is landline_security; `also` has those whose listeners stay beside it. Without `own_port` brokers share
    the clients' listener where nothing is secured.
    """
    between = {
        **dict.fromkeys(CLIENTS, BETWEEN_SECURE),
        "none": BETWEEN if int(own_port) else CLIENTS["none"],
    }
    names = {each for kind in (mode, *also) for each in (CLIENTS[kind], between[kind])}
    return {"listeners": in_order(names), "between": between[mode]}


def broker_plan(
    hosts: Iterable[Mapping[str, Any]], own: str, wanted: Mapping[str, Any], may_change: bool
) -> dict[str, Any]:
    """Returns the `listeners` of the host `own` now, and the one `between` brokers, on the way to `wanted`.

    Takes the variables of all hosts of the cluster. `broker_listeners.stdout` has the lines of
    advertised.listeners and inter.broker.listener.name in a host's properties files; it is missing if the
    host was not inspected.

    A broker that uses a listener which another broker does not have cannot reach that broker. So there are three
    steps, and a host takes one only when all hosts have done the one before:

    1. All listeners are there, and brokers use the old one. Existing listeners stay.
    2. Brokers use the wanted one. A host changes only if it `may_change`; one that has changed stays so.
    3. What is not wanted goes.

    A new host follows those that have changed. In a new cluster all begin with what is wanted.
    """
    looks = {str(host["inventory_hostname"]): _look(host) for host in hosts}
    mine, target = looks[own], str(wanted["between"])
    used = set().union(*(look["uses"] for look in looks.values() if look))
    if not used and all(look is not None for look in looks.values()):
        return {"listeners": list(wanted["listeners"]), "between": target}
    known = [look for look in looks.values() if look]
    all_have = len(known) == len(looks) and all(not look["uses"] or target in look["has"] for look in known)
    all_use = len(known) == len(looks) and used == {target}
    before = _before(mine, used, target)
    between = target if before == target or (all_have and may_change) else before
    kept = set() if all_use else used | (mine["names"] if mine else set())
    return {"listeners": in_order({*wanted["listeners"], between, *kept}), "between": between}


def broker_going_over(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the hosts whose brokers are to switch in this run to the listener that they are to use in the end."""
    return [
        str(host["inventory_hostname"])
        for host in hosts
        if "broker_target" in host
        and host["broker_speaks_by"] == host["broker_target"] != host["broker_spoke_by"]
    ]


def _before(mine: Mapping[str, set[str]] | None, used: set[str], target: str) -> str:
    """The listener that a host's brokers use, or the one to begin with if it has none."""
    own = mine["uses"] if mine else set()
    if target in (own or used):
        return target
    if own or used:
        return min(own or used)
    # New, and nobody looked at the others: the listener that they have if they are not secured.
    return target if target == BETWEEN_SECURE else CLIENTS["none"]


def _look(host: Mapping[str, Any]) -> dict[str, set[str]] | None:
    """The listeners that all brokers of a host have, that any has, and those that they use; None if nobody looked."""
    text = host.get("broker_listeners", {}).get("stdout")
    if text is None:
        return None
    lines = str(text).splitlines()
    advertised = [set(_names(line)) for line in lines if line.startswith(_ADVERTISED)]
    uses = [line.removeprefix(_SPEAKS_BY).strip() for line in lines if line.startswith(_SPEAKS_BY)]
    # A broker with one listener does not name it; others were named by hand.
    uses += [CLIENTS["none"]] * (len(advertised) - len(uses))
    return {
        "has": set.intersection(*advertised) if advertised else set(),
        "names": set().union(*advertised) & PROTOCOLS.keys(),
        "uses": {name if name in PROTOCOLS else CLIENTS["none"] for name in uses},
    }


def _names(line: str) -> Iterator[str]:
    for each in line.removeprefix(_ADVERTISED).split(","):
        yield each.partition("://")[0].strip().upper()


def in_order(names: Iterable[str]) -> list[str]:
    """Returns listeners in the order of the properties."""
    found = set(names)
    return [name for name in PROTOCOLS if name in found]


def secure_properties(names: Sequence[str], config_dir: str, super_users: Sequence[str]) -> dict[str, str]:
    """Returns the properties that listeners with these names need, beside their addresses.

    `super_users` are the brokers' own principals. Clients without a name keep their rights as long as there
    is a listener for them, so that an authorizer takes nothing from them before they have moved.
    """
    if not {"SSL", "SASL_SSL", "BROKER_SSL"} & set(names):
        return {}
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{config_dir}/broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{config_dir}/ca.pem",
        "listener.name.broker_ssl.ssl.client.auth": "required",
    }
    if "SASL_SSL" in names:
        nameless = [ANONYMOUS] if set(NAMELESS) & set(names) else []
        found |= {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": ";".join([*super_users, *nameless]),
        }
    return found


def http_properties(config_dir: str, tls: bool, has_tokens: bool) -> dict[str, str]:
    """Returns the properties of an HTTP port with TLS, or with a file of tokens."""
    found = {"landline.http.ssl.keystore.location": f"{config_dir}/broker.pem"} if tls else {}
    return found | ({"landline.http.token.file": f"{config_dir}/{HTTP_TOKENS}"} if has_tokens else {})


def broker_http_tokens(token: object) -> list[str]:
    """Returns landline_http_token, one or a list of them, as a list; empty if it is not set."""
    found = token if isinstance(token, (list, tuple)) else [token]
    return [str(each) for each in found if str(each)]


def broker_bootstrap(hosts: Iterable[Mapping[str, Any]], mode: str, port: int | str) -> str:
    """Returns the addresses of each host's first broker for clients, separated by commas; takes the hosts' variables.

    `port` applies where a host does not have its own, in `broker_kafka_port` and the like.
    """
    key = {"none": "broker_kafka_port", "tls": "broker_ssl_port", "sasl_ssl": "broker_sasl_ssl_port"}[mode]
    return ",".join(
        host_port(
            host.get("broker_advertised_host") or service_address(host),
            host.get(key, port),
        )
        for host in hosts
    )


def broker_secured_addresses(brokers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the addresses of the listeners with TLS of these brokers, from broker_instances."""
    return [
        address
        for broker in brokers
        for each in broker["properties"]["advertised.listeners"].split(",")
        for name, _unused, address in [each.partition("://")]
        if PROTOCOLS.get(name, "PLAINTEXT") != "PLAINTEXT"
    ]


def broker_certificate_names(host: Mapping[str, Any]) -> list[str]:
    """Returns the names and addresses that a host's certificate is for; takes the host's variables."""
    keys = ("inventory_hostname", "ansible_host", "landline_address", "broker_advertised_host")
    found = [host.get(key) for key in keys]
    if host.get("broker_http_tls", host.get("landline_http_tls")):
        found += [each for each in [host.get("broker_http_host")] if each not in ANY_ADDRESS]
    return list(dict.fromkeys(_canonical(str(each).strip("[]")) for each in found if each))


def _canonical(name: str) -> str:
    """An IPv6 address may be written in several ways, and a certificate has one."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def broker_certificate_hosts(hosts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the hosts as broker_certificates takes them, each with the files of given certificates, if any."""
    return [
        {
            "name": str(host["inventory_hostname"]),
            "names": broker_certificate_names(host),
            "file": str(host.get("broker_certificate_file") or host.get("landline_certificate_file") or ""),
            "trusted": str(host.get("broker_trusted_file") or host.get("landline_trusted_file") or ""),
        }
        for host in hosts
    ]


def client_properties(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns Kafka's settings for a client of the cluster: `mode`, `bootstrap`, `user`, `password`, and `trusted`,
    the certificates of the CA as PEM, in one value.
    """
    found = {
        "bootstrap.servers": settings["bootstrap"],
        "security.protocol": PROTOCOLS[CLIENTS[settings["mode"]]],
    }
    if settings["mode"] != "none":
        pem = "".join(
            re.findall(
                r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", settings["trusted"], re.DOTALL
            )
        )
        found |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": pem.strip().replace("\n", "\\n"),
        }
    if settings["mode"] == "sasl_ssl":
        found |= {
            "sasl.mechanism": settings["mechanism"],
            "sasl.jaas.config": _jaas(settings["user"], settings["password"]),
        }
    return dict(sorted(found.items()))


def _jaas(user: str, password: str) -> str:
    """A line of JAAS as it stands in a file of properties, where a backslash is written twice."""

    def quoted(text: str) -> str:
        escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
        return '"' + escaped.replace("\\", "\\\\") + '"'

    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f"{module} required username={quoted(user)} password={quoted(password)};"


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "broker_wanted": broker_wanted,
            "broker_plan": broker_plan,
            "broker_going_over": broker_going_over,
            "broker_secured_addresses": broker_secured_addresses,
            "broker_bootstrap": broker_bootstrap,
            "broker_certificate_names": broker_certificate_names,
            "broker_certificate_hosts": broker_certificate_hosts,
            "broker_http_tokens": broker_http_tokens,
            "client_properties": client_properties,
        }
