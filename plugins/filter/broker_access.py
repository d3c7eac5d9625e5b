# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Judges what an inventory says of security, users, ACLs and quotas, before any host is touched. Pure.

`landline access` judges users, ACLs and quotas again, and brings them about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.landline.cluster.plugins.filter.broker_security import (
    CLIENTS,
    MECHANISMS,
    broker_http_tokens,
)

RESOURCES = ("topic", "group", "cluster", "transactional_id", "delegation_token", "user")
OPERATIONS = (
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
)
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)
STATES = ("present", "absent")
# Listeners are the role's with security, or the user's, never a mixture.
_BY_HAND = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
    "inter.broker.listener.name",
)
# These have a variable, by which the playbook also asks the port.
_HTTP_BY_HAND = {
    "landline.http.ssl.keystore.location": "landline_http_tls: true",
    "landline.http.token.file": "landline_http_token",
}
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
_MOST_TOKENS = 16
# Debian has them as packages that are new enough.
EXTRAS = ("gssapi",)
_KEYS = {
    "landline_users": ("name", "password", "mechanisms", "state"),
    "landline_acls": (
        "principal",
        "resource",
        "name",
        "pattern",
        "operations",
        "permission",
        "host",
        "state",
    ),
    "landline_quotas": ("user", "client_id", "ip", "values", "state"),
}


def broker_security_problems(settings: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with the settings, in words; empty if they are good.

    `settings` has `mode`, `also`, `directory`, `certificate`, `trusted`, `users`, `acls`, `quotas`,
    `service_user`, `properties`, `super_users`, `http_tls`, `http_token` and `extras`, as the role's variables.
    """
    modes = [settings["mode"], *_listed(settings["also"])]
    unknown = [each for each in modes if each not in CLIENTS]
    if unknown:
        return [f"landline_security is {_of(each, CLIENTS)}" for each in unknown]
    found = [
        *_rows("landline_users", settings["users"], _user),
        *_rows("landline_acls", settings["acls"], _acl),
        *_rows("landline_quotas", settings["quotas"], _quota),
        *_http(settings, set(modes) != {"none"}),
        *_extras(settings["extras"]),
    ]
    if set(modes) == {"none"}:
        return found
    by_hand = [key for key in _BY_HAND if key in settings["properties"]]
    if by_hand:
        found.append(
            f"broker_properties sets {', '.join(by_hand)}, which landline_security: {settings['mode']} sets: take "
            "them away, or set landline_security: none and secure the listeners by hand"
        )
    if bool(settings["certificate"]) != bool(settings["trusted"]):
        found.append("landline_certificate_file and landline_trusted_file belong together: set both, or none")
    if not settings["certificate"] and not settings["directory"]:
        found.append(
            "landline_certificates_dir is missing: a directory on this machine for the CA and the hosts' keys; or "
            "set landline_certificate_file and landline_trusted_file to certificates of your own"
        )
    return [*found, *(_service_user(settings) if "sasl_ssl" in modes else ())]


def _http(settings: Mapping[str, Any], is_secured: bool) -> Iterator[str]:
    """What is wrong with the HTTP port's settings; no token is shown."""
    if settings["http_tls"] and not is_secured:
        yield (
            "landline_http_tls needs the certificates of landline_security, which is none: set that to tls or "
            "sasl_ssl, or landline_http_tls: false"
        )
    for key, variable in _HTTP_BY_HAND.items():
        if key in settings["properties"]:
            yield f"broker_properties sets {key}: take it away, and set {variable}"
    tokens = broker_http_tokens(settings["http_token"])
    if len(tokens) > _MOST_TOKENS:
        yield f"landline_http_token has {len(tokens)} tokens: at most {_MOST_TOKENS} are possible"
    for number, token in enumerate(tokens, 1):
        if not _TOKEN.fullmatch(token):
            yield (
                f"landline_http_token, token {number}, is none: 16 to 512 letters, digits or -._~+/= are, such as "
                "`openssl rand -hex 32` writes"
            )


def _extras(extras: Any) -> Iterator[str]:
    if not isinstance(extras, (list, tuple)):
        yield "landline_extras must be a list"
        return
    for extra in extras:
        if extra not in EXTRAS:
            yield (
                f"landline_extras has {extra!r}, which a deploy cannot install: {', '.join(EXTRAS)} it can, because "
                "Debian has the library"
            )


def _service_user(settings: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(settings["users"], (list, tuple)):
        return
    users = [each for each in settings["users"] if isinstance(each, Mapping)]
    present = [str(each.get("name")) for each in users if each.get("state", "present") == "present"]
    if settings["service_user"] not in present:
        yield (
            f"landline_users has no user {settings['service_user']} (landline_service_user), as whom the journal "
            "shipper, Spark's jobs and the smoke tests log in"
        )
    for name in present:
        if f"User:{name}" in settings["super_users"]:
            yield f"landline_users: {name} has the name of the brokers, who may do everything: choose another one"


def _rows(variable: str, rows: Any, judge: Any) -> Iterator[str]:
    if not isinstance(rows, (list, tuple)):
        yield f"{variable} must be a list"
        return
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            yield f"{variable}, entry {number} must have {', '.join(_KEYS[variable])}"
            continue
        place = f"{variable}, entry {number}"
        yield from (
            f"{place}: {key} is unknown: {', '.join(_KEYS[variable])} are known"
            for key in row
            if key not in _KEYS[variable]
        )
        if row.get("state", "present") not in STATES:
            yield f"{place}: state is {_of(row['state'], STATES)}"
        yield from (f"{place}: {problem}" for problem in judge(row))


def _user(row: Mapping[str, Any]) -> Iterator[str]:
    if not row.get("name"):
        yield "name is missing"
    if row.get("state", "present") == "present" and not str(row.get("password") or ""):
        yield f"the password of {row.get('name')} is missing"
    for each in _listed(row.get("mechanisms", MECHANISMS)):
        if each not in MECHANISMS:
            yield f"a mechanism of {row.get('name')} is {_of(each, MECHANISMS)}"


def _acl(row: Mapping[str, Any]) -> Iterator[str]:
    if ":" not in str(row.get("principal", "")):
        yield f"principal is {row.get('principal', '')!r}: Type:name is expected, such as User:alice"
    if row.get("resource") not in RESOURCES:
        yield f"resource is {_of(row.get('resource', ''), RESOURCES)}"
    elif row["resource"] != "cluster" and not row.get("name"):
        yield "name is missing: that of the resource, or * for all"
    if row.get("pattern", "literal") not in ("literal", "prefixed"):
        yield f"pattern is {_of(row['pattern'], ('literal', 'prefixed'))}"
    if row.get("permission", "allow") not in ("allow", "deny"):
        yield f"permission is {_of(row['permission'], ('allow', 'deny'))}"
    if not _listed(row.get("operations", ())):
        yield "operations are missing"
    for each in _listed(row.get("operations", ())):
        if each not in OPERATIONS:
            yield f"an operation is {_of(each, OPERATIONS)}"


def _quota(row: Mapping[str, Any]) -> Iterator[str]:
    entity = [key for key in ("user", "client_id", "ip") if key in row]
    if not entity or ("ip" in entity and len(entity) > 1):
        yield "user, client_id or both, or ip must be named; <default> is for all others"
    values = row.get("values") or {}
    if not isinstance(values, Mapping):
        yield "values must be rates by key"
        return
    if not values and row.get("state", "present") == "present":
        yield "values are missing: rates by key"
    known = IP_QUOTAS if "ip" in row else QUOTAS
    for key, value in values.items():
        if key not in known:
            yield f"a key is {_of(key, known)}"
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            yield f"{key} is {value!r}: a number of at least 0 is expected"


def _of(value: object, known: Iterable[str]) -> str:
    return f"{value!r}, which is none of {', '.join(known)}"


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"broker_security_problems": broker_security_problems}
