# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role spark: they turn its variables into Spark's own settings, and say what is wrong with them."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.landline.cluster.plugins.module_utils.addresses import (
    bracketed,
    host_port,
    service_address,
)

AUTHENTICATED_BY = "spark.authenticate.secret"
MIN_SECRET = 16
_VERSION = re.compile(r"""__version__[^"'\n]*["']([^"']+)""")


def spark_addresses(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the addresses at which the other hosts reach each of the hosts, given by their variables."""
    return [str(host.get("spark_address") or service_address(host)) for host in hosts]


def spark_url(addresses: Iterable[str], port: int) -> str:
    """Returns the URL by which workers and drivers find the masters."""
    return "spark://" + ",".join(host_port(address, port) for address in addresses)


def spark_version(text: str) -> str:
    """Returns the version in the text of pyspark's version.py; "" if there is none."""
    found = _VERSION.search(text)
    return found[1] if found else ""


def spark_keys(read: Iterable[Mapping[str, Any]], before: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys by host: of those that could be read, by a loop of slurp, else as they were before."""
    found = {
        str(each["item"]): b64decode(each["content"]).decode().strip() for each in read if "content" in each
    }
    return {**before, **found}


def spark_authorized(text: str, masters: Iterable[str], user: str) -> dict[str, str]:
    """Returns the masters' public keys in an authorized_keys, by the hosts that their comments name."""
    keys = [line.partition("restrict ")[2].strip() for line in text.splitlines()]
    return {host: key for host in masters for key in keys if key.endswith(f" {user}@{host}")}


def spark_known(text: str, addresses: Mapping[str, str]) -> dict[str, str]:
    """Returns the hosts' keys in a known_hosts, by host; takes their addresses."""
    lines = [line.partition(" ") for line in text.splitlines()]
    return {
        host: key.strip()
        for host, address in addresses.items()
        for name, _unused, key in lines
        if name == address
    }


def spark_properties(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the lines of spark-defaults.conf by key; the user's, in `settings["defaults"]`, take precedence."""
    own: dict[str, Any] = {
        # Spark's own default since 4.1 is true; that port knows no spark.authenticate.
        "spark.master.rest.enabled": False,
        # A worker that is taken away gives its blocks to the others.
        "spark.decommission.enabled": True,
        "spark.storage.decommission.enabled": True,
        "spark.storage.decommission.rddBlocks.enabled": True,
        "spark.storage.decommission.shuffleBlocks.enabled": True,
    }
    if settings["secret"]:
        own |= {
            "spark.authenticate": True,
            AUTHENTICATED_BY: settings["secret"],
            # Otherwise the secret is used with DIGEST-MD5, and everything is sent as it is.
            "spark.network.crypto.enabled": True,
        }
    if directory := _url(settings["event_log_dir"]):
        own |= {
            "spark.eventLog.enabled": True,
            "spark.eventLog.dir": directory,
            "spark.history.fs.logDirectory": directory,
            "spark.history.fs.cleaner.enabled": True,
            "spark.history.fs.cleaner.maxAge": settings["event_log_max_age"],
            "spark.history.ui.port": settings["history_port"],
        }
    if settings["recovery_mode"] != "NONE":
        own |= {
            "spark.deploy.recoveryMode": settings["recovery_mode"],
            "spark.deploy.zookeeper.url": settings["zookeeper"],
            "spark.deploy.zookeeper.dir": settings["zookeeper_dir"],
        }
    return {key: _text(value) for key, value in {**own, **settings["defaults"]}.items()}


def spark_property(value: str) -> str:
    """Returns a value as a line of spark-defaults.conf has it, which Java reads as properties."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def spark_problems(settings: Mapping[str, Any]) -> list[str]:
    """Returns what is wrong with the role's variables, in sentences; it never tells the secret."""
    return list(_problems(settings))


def _problems(settings: Mapping[str, Any]) -> Iterator[str]:
    secret, masters = str(settings["secret"]), len(settings["masters"])
    if masters == 0:
        yield "The group spark_master has no host: give it one, or two for a standby."
    if secret and (len(secret) < MIN_SECRET or secret != secret.strip() or not secret.isprintable()):
        yield (
            f"spark_auth_secret must have at least {MIN_SECRET} printable characters, and no space at its ends "
            "(openssl rand -hex 24 makes one)."
        )
    if AUTHENTICATED_BY in settings["defaults"]:
        yield f"{AUTHENTICATED_BY} is in spark_defaults: set spark_auth_secret, which is kept out of logs and diffs."
    for key in settings["defaults"]:
        if not str(key).startswith("spark.") or set(str(key)) & set(" \t=:"):
            yield f"spark_defaults has {key!r}, which is no key of Spark's."
    if masters > 1 and settings["recovery_mode"] == "NONE":
        yield f"spark_recovery_mode is NONE with {masters} masters: each would take itself for the only one."
    if settings["recovery_mode"] != "NONE" and not settings["zookeeper"]:
        yield "spark_recovery_mode is ZOOKEEPER, and the group zookeeper has no host."
    if int(settings["workers_per_host"]) < 1:
        yield f"spark_workers_per_host is {settings['workers_per_host']}: give 1 or more."
    directory = str(settings["event_log_dir"])
    if directory and not directory.startswith("/") and "://" not in directory:
        yield f"spark_event_log_dir is {directory!r}: give a path from /, or a URL such as hdfs://."


def _url(directory: str) -> str:
    return f"file://{directory}" if directory.startswith("/") else directory


def _text(value: Any) -> str:
    """The value as Spark reads it: true, and not Python's True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "spark_addresses": spark_addresses,
            "spark_host": bracketed,
            "spark_authorized": spark_authorized,
            "spark_keys": spark_keys,
            "spark_known": spark_known,
            "spark_problems": spark_problems,
            "spark_properties": spark_properties,
            "spark_property": spark_property,
            "spark_url": spark_url,
            "spark_version": spark_version,
        }
