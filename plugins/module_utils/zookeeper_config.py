# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""With which ensemble a ZooKeeper server is configured, and its process was started. For the modules."""

from __future__ import annotations

MEMBERS_VARIABLE = b"LANDLINE_ZOOKEEPER_MEMBERS="


def parse_config(text: str) -> dict[str, str]:
    """Returns the settings of a zoo.cfg by key."""
    lines = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _unused, value in lines}


def server_lines(config: dict[str, str]) -> dict[int, str]:
    """Returns the addresses of the servers in a zoo.cfg, by id; none for a standalone server."""
    return {
        int(key.removeprefix("server.")): value
        for key, value in config.items()
        if key.startswith("server.") and key.removeprefix("server.").isdecimal()
    }


def members_in(environ: bytes) -> list[int]:
    """Returns the members that a process was started with; empty if its environment does not have them."""
    for entry in environ.split(b"\0"):
        if entry.startswith(MEMBERS_VARIABLE):
            return [int(each) for each in entry[len(MEMBERS_VARIABLE) :].decode().split(",") if each]
    return []
