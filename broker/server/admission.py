"""Decides on which thread a request runs, or whether it is refused, before it is decoded.

Small requests run on the network thread, because a hand-off between threads costs more than the request
(ADR 1). Requests that may block and large ones go to a handler thread. A request with more elements than
any client sends is refused before decoding, because one element of a byte can cost a kilobyte of memory and
ten microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.protocol.api_keys import ApiKey


class Place(Enum):
    """Where a request is handled."""

    HERE = "served on the network thread"
    HANDLER = "served by a handler thread"
    REFUSED = "not decoded"


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits of one API: bytes of the body, and elements of all its arrays together, including
    nested ones.

    An element of the most expensive APIs (DescribeGroups, FindCoordinator) takes 12 µs. So 512 elements
    occupy the network thread for a few milliseconds, and 100,000 occupy a handler for a second.

    ``for_brokers``: only brokers may send it. It has its own handlers, so that client requests never delay
    the controller's requests to this broker. Such requests of more than ``alone_bytes`` run one at a time:
    several that compute would leave the network thread little time.

    ``blocks``: its handler waits for ZooKeeper for each element and computes in between. Requests up to this
    many bytes run in parallel. Larger ones of all such APIs run one at a time on a separate thread, so that
    eight of them never compute at the same time, and requests that only compute do not queue behind them.

    ``asks_only``: it changes nothing, so it need not be served if its client has disconnected.
    """

    here_bytes: int = 16 * 1024
    here_elements: int = 512
    most_elements: int = 100_000
    for_brokers: bool = False
    alone_bytes: int = 16 * 1024
    blocks: int = 0
    asks_only: bool = False

    def place(self, size: int, elements: int) -> Place:
        """The place for a body of ``size`` bytes. ``elements`` need not be exact above the limit."""
        if elements > self.most_elements:
            return Place.REFUSED
        if size > self.here_bytes or elements > self.here_elements:
            return Place.HANDLER
        return Place.HERE


_ON_HANDLERS: Final = -1  # bytes: below the size of any body
_UNBOUNDED: Final = (1 << 31) - 1
_ASKS: Final = Rule(asks_only=True)
_ASKS_HANDLERS: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, asks_only=True)
_COMPUTES: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0)
# 2 KiB are 20 topics with configs, or 700 one-letter names, and take 40 ms. Describing all configs of a
# broker takes 35 ms the first time, those of a topic 4 ms; 8 bytes of request are enough for either.
_ADMIN: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, blocks=2 * 1024)
_ASKS_ADMIN: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, blocks=64, asks_only=True)
# Requests about all partitions of a broker. Each partition names up to five replicas twice (assigned, in
# sync), so this is enough for 200,000 partitions in one request.
_BROKERS: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, most_elements=2_200_000, for_brokers=True)
# A broker's requests on its own behalf: no arrays but tags.
_OF_ONE_BROKER: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, most_elements=1_000, for_brokers=True)
# Markers come from brokers and, for hanging transactions, from an administrator. Each partition is an append of 50 µs.
_MARKERS: Final = Rule(here_elements=64)

RULES: Final[Mapping[ApiKey, Rule]] = {
    # Records and positions are parsed in place: bytes cost nothing, a partition costs a few microseconds.
    ApiKey.PRODUCE: Rule(here_bytes=_UNBOUNDED, here_elements=1_000),
    ApiKey.FETCH: Rule(here_bytes=_UNBOUNDED, here_elements=2_000),
    ApiKey.LIST_OFFSETS: _ASKS,
    ApiKey.METADATA: _ASKS,
    ApiKey.LEADER_AND_ISR: _BROKERS,
    ApiKey.STOP_REPLICA: _BROKERS,
    ApiKey.UPDATE_METADATA: _BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _OF_ONE_BROKER,
    ApiKey.OFFSET_COMMIT: Rule(),
    ApiKey.OFFSET_FETCH: _ASKS,
    ApiKey.FIND_COORDINATOR: _ASKS,
    ApiKey.JOIN_GROUP: Rule(),
    ApiKey.HEARTBEAT: Rule(),
    ApiKey.LEAVE_GROUP: Rule(here_elements=64),  # each member is searched in the group: 6 µs
    ApiKey.SYNC_GROUP: Rule(),
    ApiKey.DESCRIBE_GROUPS: _ASKS_HANDLERS,  # one name can request megabytes of members
    ApiKey.LIST_GROUPS: _ASKS_HANDLERS,  # returns all groups
    ApiKey.SASL_HANDSHAKE: Rule(asks_only=True),
    ApiKey.API_VERSIONS: Rule(here_bytes=_UNBOUNDED),
    ApiKey.CREATE_TOPICS: _ADMIN,
    ApiKey.DELETE_TOPICS: _ADMIN,
    ApiKey.DELETE_RECORDS: _ADMIN,  # each partition writes a file: its leader epochs
    ApiKey.INIT_PRODUCER_ID: Rule(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(here_elements=128, asks_only=True),
    ApiKey.ADD_PARTITIONS_TO_TXN: Rule(),
    ApiKey.ADD_OFFSETS_TO_TXN: Rule(),
    ApiKey.END_TXN: Rule(),
    ApiKey.WRITE_TXN_MARKERS: _MARKERS,
    ApiKey.TXN_OFFSET_COMMIT: Rule(),
    ApiKey.DESCRIBE_ACLS: _ASKS_HANDLERS,  # returns all ACLs
    ApiKey.CREATE_ACLS: _ADMIN,
    ApiKey.DELETE_ACLS: _ADMIN,
    ApiKey.DESCRIBE_CONFIGS: _ASKS_ADMIN,
    ApiKey.ALTER_CONFIGS: _ADMIN,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ADMIN,  # each partition that moves makes a directory
    ApiKey.DESCRIBE_LOG_DIRS: _ASKS_HANDLERS,  # returns all partitions
    ApiKey.SASL_AUTHENTICATE: Rule(asks_only=True),
    ApiKey.CREATE_PARTITIONS: _ADMIN,
    ApiKey.CREATE_DELEGATION_TOKEN: _ADMIN,
    ApiKey.RENEW_DELEGATION_TOKEN: _ADMIN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _ADMIN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _ASKS_HANDLERS,  # returns all of a principal's
    ApiKey.DELETE_GROUPS: _COMPUTES,  # each offset of a group is a record to write, and one name is enough for all
    ApiKey.ELECT_LEADERS: _COMPUTES,  # the controller's thread does the rest, including the waiting
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ADMIN,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _COMPUTES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _ASKS_HANDLERS,
    ApiKey.OFFSET_DELETE: _COMPUTES,  # it reads the subscriptions of all members
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _ASKS_ADMIN,
    ApiKey.ALTER_CLIENT_QUOTAS: _ADMIN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _ASKS_ADMIN,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ADMIN,
    ApiKey.ALTER_PARTITION: _BROKERS,
    ApiKey.UPDATE_FEATURES: Rule(),
    ApiKey.DESCRIBE_CLUSTER: _ASKS,
    ApiKey.DESCRIBE_PRODUCERS: _ASKS_HANDLERS,  # returns all producers of a partition
    ApiKey.DESCRIBE_TRANSACTIONS: _ASKS_HANDLERS,  # one name can request megabytes of partitions
    ApiKey.LIST_TRANSACTIONS: _ASKS_HANDLERS,  # returns all transactions
    ApiKey.ALLOCATE_PRODUCER_IDS: _OF_ONE_BROKER,
    # It may compute the assignment of a whole group.
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _COMPUTES,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _ASKS_HANDLERS,
}
