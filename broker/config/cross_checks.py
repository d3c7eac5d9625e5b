"""Checks broker keys against each other: Kafka 3.9's rules and a few of Landline's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from broker.config.http_keys import check_http
from broker.config.listeners import Complain
from broker.config.types import Value
from broker.config.zookeeper_keys import check_zookeeper

Get = Callable[[str], Any]

# The first must not be larger than the second.
_ORDERED: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("message.max.bytes", "socket.request.max.bytes"),
)
# At least 1, although Kafka's table has no range for them.
_POSITIVE: Final = (
    "log.roll.ms",
    "num.replica.fetchers",
    "replica.lag.time.max.ms",
    "replica.socket.timeout.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "controller.socket.timeout.ms",
    "controlled.shutdown.max.retries",
    "default.replication.factor",
    "group.max.size",
    "group.min.session.timeout.ms",
    "zookeeper.session.timeout.ms",
)
_NOT_NEGATIVE: Final = (
    "log.roll.jitter.ms",
    "replica.fetch.min.bytes",
    "replica.fetch.wait.max.ms",
    "group.initial.rebalance.delay.ms",
    "controlled.shutdown.retry.backoff.ms",
    "offset.metadata.max.bytes",
)
_UNLIMITED_OR_POSITIVE: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_SOCKET_BUFFERS: Final = (
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "replica.socket.receive.buffer.bytes",
)
_OLDEST_PROTOCOL: Final = (2, 7)
_NEWEST_PROTOCOL: Final = (3, 9)
_LEAST_DEDUPE_BUFFER: Final = 1 << 20


def check_together(get: Get, given: Mapping[str, Value], complain: Complain) -> None:
    """Reports problems by ``complain(key, message)``. ``get`` returns a key's value; ``given`` has the keys
    that were set.
    """
    _check_identity(get, complain)
    _check_log_dirs(get, given, complain)
    _check_numbers(get, complain)
    _check_protocol_version(get, complain)
    _check_connection_overrides(get, complain)
    _check_request_memory(get, complain)
    _check_max_connections(get, complain)
    _check_cleaner(get, complain)
    check_zookeeper(get, complain)
    check_http(get, given, complain)


def _check_identity(get: Get, complain: Complain) -> None:
    broker_id, highest = get("broker.id"), get("reserved.broker.max.id")
    if broker_id < -1:
        complain("broker.id", f"{broker_id} is negative: give a number of at least 0, or -1 to take one")
    elif broker_id == -1 and not get("broker.id.generation.enable"):
        complain("broker.id", "must be set, because broker.id.generation.enable is false")
    elif broker_id > highest and get("broker.id.generation.enable"):
        complain(
            "broker.id",
            f"{broker_id} is above reserved.broker.max.id {highest}, where generated ids begin: take a lower "
            "one, raise that, or set broker.id.generation.enable=false",
        )
    if not get("landline.standalone") and not (get("zookeeper.connect") or "").strip():
        complain(
            "zookeeper.connect",
            "must be set, such as zk1:2181,zk2:2181/kafka. To run without ZooKeeper: landline standalone",
        )


def _check_log_dirs(get: Get, given: Mapping[str, Value], complain: Complain) -> None:
    key = "log.dirs" if "log.dirs" in given else "log.dir"
    text = get(key) or ""
    dirs = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not dirs:
        complain(key, "is empty: name at least one data directory")
    for entry in sorted({entry for entry in dirs if dirs.count(entry) > 1}):
        complain(key, f"names {entry} twice")
    # What lies in a data directory is taken for a partition.
    for outer, inner in itertools.permutations(sorted(set(dirs)), 2):
        if PurePosixPath(outer) in PurePosixPath(inner).parents:
            complain(key, f"names {inner}, which lies in {outer}")


def _check_numbers(get: Get, complain: Complain) -> None:
    for low, high in _ORDERED:
        if get(low) > get(high):
            complain(low, f"{get(low)} is larger than {high} {get(high)}")
    interval, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if get(interval) == get(session):
        complain(interval, f"{get(interval)} is not smaller than {session}")
    for key in _POSITIVE:
        if get(key) is not None and get(key) < 1:
            complain(key, f"{get(key)} is too small: at least 1 is expected")
    for key in _NOT_NEGATIVE:
        if get(key) is not None and get(key) < 0:
            complain(key, f"{get(key)} is negative: at least 0 is expected")
    for key in _UNLIMITED_OR_POSITIVE:
        if get(key) is not None and get(key) != -1 and get(key) < 1:
            complain(key, f"{get(key)} keeps nothing: at least 1, or -1 for no limit, is expected")
    for key in _SOCKET_BUFFERS:
        if get(key) != -1 and get(key) < 1:
            complain(key, f"{get(key)} is no size: at least 1, or -1 for the system's default, is expected")


def _check_protocol_version(get: Get, complain: Complain) -> None:
    key = "inter.broker.protocol.version"
    match = re.match(r"(\d+)\.(\d+)", get(key))
    version = (int(match[1]), int(match[2])) if match else _NEWEST_PROTOCOL
    if not _OLDEST_PROTOCOL <= version <= _NEWEST_PROTOCOL:
        complain(key, f"{get(key)} is not spoken: 2.7 to 3.9 are, and 3.9 is what is sent")


def _check_connection_overrides(get: Get, complain: Complain) -> None:
    key = "max.connections.per.ip.overrides"
    for entry in (part.strip() for part in get(key).split(",") if part.strip()):
        if not re.fullmatch(r".+:\d+", entry):
            complain(key, f"{entry!r} is not address:count")


def _check_request_memory(get: Get, complain: Complain) -> None:
    budget, largest = get("queued.max.request.bytes"), get("socket.request.max.bytes")
    if 0 < budget < largest:
        complain(
            "queued.max.request.bytes",
            f"{budget} is less than socket.request.max.bytes {largest}: raise it, or give -1 for no limit",
        )


def _check_max_connections(get: Get, complain: Complain) -> None:
    if get("max.connections") == 0 and "," not in get("listeners"):
        complain(
            "max.connections",
            "0 lets nobody in, and the brokers neither, who have no listener of their own: at least 1 is expected",
        )
    if get("max.connections.per.ip") == 0 and not get("max.connections.per.ip.overrides").strip():
        complain(
            "max.connections.per.ip",
            "0 lets in only the addresses of max.connections.per.ip.overrides, which has none: at least 1 is expected",
        )


def _check_cleaner(get: Get, complain: Complain) -> None:
    key = "log.cleaner.dedupe.buffer.size"
    if get(key) <= _LEAST_DEDUPE_BUFFER:
        complain(key, f"{get(key)} is too small: more than {_LEAST_DEDUPE_BUFFER} is expected")
