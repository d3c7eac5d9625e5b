"""Reads the znodes below a chroot as plain values, and compares the kinds of two trees: for two
brokers' znodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kazoo.client import KazooClient

CONNECT_TIMEOUT_S = 15.0
_SEQUENCE_NUMBER = re.compile(r"\d{10}$")
# Keys in which two clusters may differ: identities, times, addresses. Their types are still compared.
EXACT_KEYS = frozenset(
    {"version", "status", "kraftControllerEpoch", "jmx_port", "features", "config", "entity_path"}
)


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode: its bytes and whether it belongs to a session."""

    data: bytes | None
    ephemeral: bool


def read_tree(connect_string: str) -> dict[str, Znode]:
    """Reads every znode below the chroot of ``host:port/chroot``, by path; sequence numbers become ``%``."""
    client = KazooClient(hosts=connect_string, timeout=CONNECT_TIMEOUT_S)
    client.start(CONNECT_TIMEOUT_S)
    try:
        return dict(_walk(client, "/"))
    finally:
        client.stop()
        client.close()


def differences(ours: Mapping[str, Znode], theirs: Mapping[str, Znode]) -> list[str]:
    """Every difference in kind between our tree and theirs; empty when they agree."""
    only_ours = [f"only ours has {path}" for path in sorted(ours.keys() - theirs.keys())]
    only_theirs = [f"only theirs has {path}" for path in sorted(theirs.keys() - ours.keys())]
    both = [
        f"{path}: {difference}"
        for path in sorted(ours.keys() & theirs.keys())
        for difference in _znode_differences(ours[path], theirs[path])
    ]
    return [*only_ours, *only_theirs, *both]


def _walk(client: KazooClient, path: str) -> Iterator[tuple[str, Znode]]:
    data, stat = client.get(path)
    if path != "/":
        yield _SEQUENCE_NUMBER.sub("%", path), Znode(data, stat.ephemeralOwner != 0)
    for child in sorted(client.get_children(path)):
        yield from _walk(client, f"{path.rstrip('/')}/{child}")


def _znode_differences(ours: Znode, theirs: Znode) -> Iterator[str]:
    if ours.ephemeral != theirs.ephemeral:
        yield f"ephemeral is {ours.ephemeral}, theirs {theirs.ephemeral}"
    yield from _value_differences("", _parsed(ours.data), _parsed(theirs.data))


def _parsed(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def _value_differences(where: str, ours: object, theirs: object) -> Iterator[str]:
    if type(ours) is not type(theirs):
        yield f"{where or 'value'} is {ours!r}, theirs {theirs!r}"
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            yield f"{where or 'value'} has keys {sorted(ours)}, theirs {sorted(theirs)}"
        for key in ours.keys() & theirs.keys():
            yield from _value_differences(f"{where}.{key}", ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield from _list_differences(where, ours, theirs)
    elif where.rpartition(".")[2] in EXACT_KEYS and ours != theirs:
        yield f"{where} is {ours!r}, theirs {theirs!r}"


def _list_differences(where: str, ours: list[object], theirs: list[object]) -> Iterator[str]:
    if len(ours) != len(theirs):
        yield f"{where or 'value'} is {ours!r}, theirs {theirs!r}"
        return
    for number, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True)):
        yield from _value_differences(f"{where}[{number}]", our_item, their_item)
