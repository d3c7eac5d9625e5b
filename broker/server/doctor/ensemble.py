"""What a broker's host sees of ZooKeeper: each server, and a session of the doctor's own. `ensemble_judge` judges
it. Nothing is written: not even the chroot is made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from broker.server.doctor.answers import Dialled
from broker.server.doctor.dialling import Address, reach
from broker.server.doctor.ensemble_judge import Asked, EnsembleMember
from broker.zookeeper import znodes
from broker.zookeeper.access import ZooKeeperAccess
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.connect_string import Secure, parse_connect_string
from broker.zookeeper.servers import srvr
from broker.zookeeper.store import NoNodeError, StoreError

# Nodes whose ACLs stand for the tree's: one that all may read, and one with secrets.
ACL_PATHS: Final = ("/brokers/topics", "/config/users")
_ROUNDS: Final = 5


def ask_server(address: Address, secure: Secure | None, step_ms: int) -> EnsembleMember:
    """How one server is: the answer to its command `srvr`."""
    refused = reach(address, step_ms)
    if refused is not None:
        return EnsembleMember(address, refused.dialled, refused.detail)
    began_s = time.monotonic()
    try:
        answer = srvr(address, secure, step_ms / 1000)
    except TimeoutError:
        return EnsembleMember(address, Dialled.SILENT)
    except OSError as error:
        return EnsembleMember(address, Dialled.NO_TLS if secure else Dialled.HUNG_UP, str(error))
    words = dict(line.partition(": ")[::2] for line in answer.splitlines())
    return EnsembleMember(
        address,
        Dialled.ANSWERED,
        answer.splitlines()[0] if answer else "",
        mode=words.get("Mode", ""),
        version=next(
            (text.split("-")[0] for name, text in words.items() if name.startswith("Zookeeper version")), ""
        ),
        took_ms=int((time.monotonic() - began_s) * 1000),
    )


def ask_session(connect: str, access: ZooKeeperAccess, within_ms: int) -> Asked:
    """A session, the time of a read in it, the chroot, the cluster, the registered brokers and the ACLs. Raises
    :class:`StoreError` if there is no session.
    """
    hosts, chroot = parse_connect_string(connect)
    store = ZooKeeperStore(hosts, within_ms, access)  # without the chroot, which it would make
    began_s = time.monotonic()
    store.connect(within_ms, threading.Event())
    try:
        session_ms = int((time.monotonic() - began_s) * 1000)
        times = []
        for _ in range(_ROUNDS):
            asked_s = time.monotonic()
            exists = store.exists(chroot or "/") is not None
            times.append((time.monotonic() - asked_s) * 1000)
        registered, offsets_ms = _registered(store, chroot) if exists else ({}, {})
        paths = [chroot + path for path in ACL_PATHS] if exists else []
        try:
            acls = dict(zip(ACL_PATHS, store.get_acls_many(paths), strict=False))
        except StoreError:  # not for us to see
            acls = {}
        return Asked(
            session_ms=session_ms,
            read_ms=sorted(times)[_ROUNDS // 2],
            chroot=chroot,
            exists=exists,
            cluster_id=_cluster_id(store, chroot) if exists else None,
            controller_id=_controller_id(store, chroot) if exists else None,
            registered=registered,
            offsets_ms=offsets_ms,
            acls={path: entries for path, entries in acls.items() if entries is not None},
        )
    finally:
        store.close()


def _cluster_id(store: ZooKeeperStore, chroot: str) -> str | None:
    data = _data(store, chroot + znodes.CLUSTER_ID)
    return None if data is None else znodes.decode_cluster_id(data)


def _controller_id(store: ZooKeeperStore, chroot: str) -> int | None:
    data = _data(store, chroot + znodes.CONTROLLER)
    return None if data is None else znodes.decode_controller(data)


def _data(store: ZooKeeperStore, path: str) -> bytes | None:
    try:
        return store.get(path)[0]
    except NoNodeError:
        return None


def _registered(
    store: ZooKeeperStore, chroot: str
) -> tuple[Mapping[int, znodes.BrokerRegistration], Mapping[int, int]]:
    """The registrations, and by how much each broker's clock was ahead of ZooKeeper's when it registered: the
    registration has the broker's time, and the znode has ZooKeeper's.
    """
    try:
        ids = sorted(int(name) for name in store.children(chroot + znodes.BROKER_IDS) if name.isdecimal())
    except NoNodeError:
        return {}, {}
    found, offsets_ms = {}, {}
    for broker_id, node in zip(
        ids, store.get_many([chroot + znodes.broker_path(each) for each in ids]), strict=True
    ):
        if node is None:
            continue
        found[broker_id] = registration = znodes.decode_broker(broker_id, node[0])
        if registration.timestamp_ms > 0:
            offsets_ms[broker_id] = registration.timestamp_ms - node[1].ctime_ms
    return found, offsets_ms
