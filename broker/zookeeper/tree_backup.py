"""A cluster's metadata tree as a file: its format, what it leaves out, and what a restore changes. Pure.

The file has JSON lines: a header (format, cluster id, time, chroot, number of nodes), one line per node, and
a trailer with the SHA-256 of all lines before it. `tree_copy` reads and writes ZooKeeper.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.zookeeper import znodes
from broker.zookeeper.acl import PERMISSIONS, Acl
from broker.zookeeper.admin_requests import PREFERRED_ELECTION

FORMAT: Final = 1
# Queues of notifications. They are not needed, because restored brokers read everything.
_QUEUES: Final = (znodes.CONFIG_CHANGES, znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS)
# The ensemble's own nodes, the claims of running brokers, and requests of that moment.
_LEFT_OUT: Final = (
    "/zookeeper",
    znodes.CONTROLLER,
    PREFERRED_ELECTION,
    "/landline/stop_permit",
    "/landline/move_turn",
    "/landline/clock",
)
_STATE: Final = re.compile(re.escape(znodes.TOPICS) + r"/[^/]+/partitions/\d+/state")

LEADER_EPOCHS_SKIPPED: Final = 10_000
PRODUCER_IDS_SKIPPED: Final = 1_000_000_000


class BackupError(Exception):
    """The file or the tree is invalid. The message says which, and what to do."""


class NoClusterError(BackupError):
    """The tree has no ``/cluster/id``, without which it is no cluster's."""


OPEN_ACL: Final = (Acl("world", "anyone", PERMISSIONS),)


@dataclass(frozen=True, slots=True)
class Node:
    """A persistent node; ``path`` is below the chroot. ``version`` counts the writes of its data."""

    path: str
    data: bytes
    version: int = 0
    acls: tuple[Acl, ...] = OPEN_ACL


@dataclass(frozen=True, slots=True)
class Backup:
    """A cluster's metadata tree at one time. ``made_at`` is a UTC time in ISO 8601; ``nodes`` are sorted,
    parents first.
    """

    cluster_id: str
    made_at: str
    chroot: str
    nodes: tuple[Node, ...]


def is_kept(path: str) -> bool:
    """Whether a persistent node belongs in a backup."""
    if any(path == left or path.startswith(left + "/") for left in _LEFT_OUT):
        return False
    return not any(path.startswith(queue + "/") for queue in _QUEUES)


def cluster_id_of(nodes: Sequence[Node]) -> str:
    """The cluster id. Raises :class:`NoClusterError`, and :class:`BackupError` for one that cannot be read."""
    for node in nodes:
        if node.path == znodes.CLUSTER_ID:
            try:
                return znodes.decode_cluster_id(node.data)
            except znodes.BadZnodeError as error:
                raise BackupError(str(error)) from error
    raise NoClusterError(
        f"there is no cluster: {znodes.CLUSTER_ID} is missing. Check zookeeper.connect, its chroot too"
    )


def encode(backup: Backup) -> bytes:
    lines = [
        _line(
            {
                "format": FORMAT,
                "what": "landline metadata",
                "cluster_id": backup.cluster_id,
                "made_at": backup.made_at,
                "chroot": backup.chroot,
                "nodes": len(backup.nodes),
            }
        )
    ]
    lines += [_line(_node_value(node)) for node in backup.nodes]
    body = b"".join(lines)
    return body + _line({"sha256": hashlib.sha256(body).hexdigest()})


def decode(content: bytes) -> Backup:
    """Raises :class:`BackupError` for content that :func:`encode` did not write, or that has
    changed since.
    """
    lines = content.splitlines(keepends=True)
    header = _object(lines[0]) if lines else None
    if header is None or header.get("what") != "landline metadata":
        raise BackupError(
            "it is no backup of `landline metadata backup`: its first line is not such a header"
        )
    if header.get("format") != FORMAT:
        raise BackupError(
            f"it has format {header.get('format')!r}, this release reads format {FORMAT}: use the release that wrote it"
        )
    trailer = _object(lines[-1])
    if trailer is None or "sha256" not in trailer:
        raise BackupError("it is cut off: its last line, with the checksum, is missing. Take another backup")
    if trailer["sha256"] != hashlib.sha256(b"".join(lines[:-1])).hexdigest():
        raise BackupError(
            "it is damaged: its lines do not have the checksum that it ends with. Take another backup"
        )
    try:
        nodes = tuple(_node(json.loads(line)) for line in lines[1:-1])
        backup = Backup(str(header["cluster_id"]), str(header["made_at"]), str(header["chroot"]), nodes)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise BackupError(f"it holds a line that is no node: {error!r}") from error
    if header.get("nodes") != len(nodes) or cluster_id_of(nodes) != backup.cluster_id:
        raise BackupError(f"its header does not fit its {len(nodes)} nodes")
    return backup


def restored(nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes as they are restored. ``/cluster/id`` is the last: without it brokers refuse an
    incomplete tree.

    The backup is older than the logs, and the new ensemble's transaction ids start from zero. Logs remember
    leader epochs and producer ids, so both continue far above any that were assigned meanwhile. The broker
    epochs beside each ISR are transaction ids of the old ensemble, and are removed; so no replica is an
    eligible leader by them.
    """
    last = [node for node in nodes if node.path == znodes.CLUSTER_ID]
    for node in nodes:
        if node.path == znodes.CLUSTER_ID:
            continue
        if _STATE.fullmatch(node.path):
            yield replace(node, data=_restored_state(node))
        elif node.path == znodes.PRODUCER_ID_BLOCK:
            yield replace(node, data=_restored_producer_ids(node.data))
        else:
            yield node
    yield from last


def _restored_state(node: Node) -> bytes:
    value = znodes.load(node.path, node.data)
    value.pop(znodes.EPOCHS, None)
    value["leader_epoch"] = int(value["leader_epoch"]) + LEADER_EPOCHS_SKIPPED
    return znodes.dump(value)


def _restored_producer_ids(data: bytes) -> bytes:
    first = PRODUCER_IDS_SKIPPED + (znodes.decode_producer_id_block_end(data) + 1 if data else 0)
    return znodes.encode_producer_id_block(-1, first, first + znodes.PRODUCER_ID_BLOCK_SIZE - 1)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _node_value(node: Node) -> dict[str, Any]:
    return {
        "path": node.path,
        "data": base64.b64encode(node.data).decode(),
        "version": node.version,
        "acls": [[acl.scheme, acl.identity, acl.permissions] for acl in node.acls],
    }


def _node(value: dict[str, Any]) -> Node:
    acls = tuple(Acl(*map(str, entry)) for entry in value["acls"])
    return Node(
        str(value["path"]), base64.b64decode(value["data"], validate=True), int(value["version"]), acls
    )
