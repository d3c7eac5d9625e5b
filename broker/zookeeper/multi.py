"""A store's operations as one of kazoo's transactions, and its results as theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import RolledBackError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from broker.zookeeper.kazoo_values import to_stat, to_store_error
from broker.zookeeper.store import Check, Create, Delete, Op, OpResult, SetData, StoreError

_EPHEMERAL_FLAG, _SEQUENCE_FLAG = 1, 2


def start_multi(
    transaction: TransactionRequest,
    ops: Sequence[Op],
    absolute: Callable[[str], str],
    acls_of: Callable[[str], list[ACL]],
) -> IAsyncResult:
    """Sends the operations: all of them happen, or none."""
    for op in ops:
        path = absolute(op.path)
        match op:
            case Create():
                # kazoo's own method cannot create a node without data.
                flags = _EPHEMERAL_FLAG * op.ephemeral | _SEQUENCE_FLAG * op.sequence
                transaction.operations.append(CreateRequest(path, op.data or None, acls_of(op.path), flags))
            case SetData():
                transaction.set_data(path, op.data, op.version)
            case Delete():
                transaction.delete(path, op.version)
            case Check():
                transaction.check(path, op.version)
    return transaction.commit_async()


def multi_result(
    ops: Sequence[Op], results: Any, relative: Callable[[str], str]
) -> list[OpResult] | StoreError:
    """One result per operation, or the error of the one that failed."""
    if isinstance(results, StoreError):
        return results
    converted: list[OpResult] = []
    for index, (op, result) in enumerate(zip(ops, results, strict=True)):
        if isinstance(result, RolledBackError):
            continue  # a later one failed and says why
        if isinstance(result, Exception):
            return to_store_error(result, op.path, index)
        converted.append(_op_result(result, relative))
    return converted


def _op_result(result: Any, relative: Callable[[str], str]) -> OpResult:
    if isinstance(result, str):
        return relative(result)
    return to_stat(result) if isinstance(result, ZnodeStat) else None
