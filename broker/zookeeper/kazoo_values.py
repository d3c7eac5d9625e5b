"""Converts kazoo's values and errors to those of :mod:`~broker.zookeeper.store`, and back."""

from __future__ import annotations

from kazoo import exceptions as zk_errors
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id

from broker.zookeeper.acl import PERMISSIONS, Acl
from broker.zookeeper.store import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    Stat,
    StoreError,
    UnimplementedError,
)

_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (zk_errors.NoNodeError, NoNodeError),
    (zk_errors.NodeExistsError, NodeExistsError),
    (zk_errors.BadVersionError, BadVersionError),
    (zk_errors.NotEmptyError, NotEmptyError),
    (zk_errors.ConnectionClosedError, ConnectionLossError),  # kazoo counts it among the expired sessions
    (zk_errors.SessionExpiredError, SessionExpiredError),
    (zk_errors.ConnectionLoss, ConnectionLossError),
    (zk_errors.SessionMovedError, ConnectionLossError),  # sent on a connection that the session has left
    (zk_errors.OperationTimeoutError, ConnectionLossError),
    (zk_errors.RequestTimeoutError, ConnectionLossError),
    (zk_errors.ThrottledOpError, ConnectionLossError),
    (KazooTimeoutError, ConnectionLossError),
    (zk_errors.UnimplementedError, UnimplementedError),
)


def to_stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.version, stat.ephemeralOwner, stat.ctime, stat.mtime, stat.numChildren)


def to_acl(acl: ACL) -> Acl:
    permissions = "".join(letter for bit, letter in enumerate(PERMISSIONS) if acl.perms >> bit & 1)
    return Acl(acl.id.scheme, acl.id.id, permissions)


def to_kazoo_acl(acl: Acl) -> ACL:
    return ACL(
        sum(1 << PERMISSIONS.index(letter) for letter in acl.permissions), Id(acl.scheme, acl.identity)
    )


def to_store_error(error: Exception, path: str, op_index: int = 0) -> StoreError:
    if isinstance(error, StoreError):  # of our own client
        return error
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path}: {error.__class__.__name__} {error}".rstrip(), op_index)
    if isinstance(error, zk_errors.AuthFailedError):
        return StoreError(
            f"{path}: ZooKeeper refused the credentials: check landline.zookeeper.sasl.jaas.config, or "
            "landline.zookeeper.digest",
            op_index,
        )
    if isinstance(error, zk_errors.NoAuthError):
        return StoreError(f"{path}: NoAuth: its ACL does not let this session do that", op_index)
    return StoreError(f"{path}: {error!r}", op_index)
