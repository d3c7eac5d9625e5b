"""Where a request is served, or that it is not: the one table that decides, before anything is made of its bytes.

A request whose work is small runs on the network thread, for a hand-off between threads costs more than the request
(ADR 1). What may block, and what is large, goes to a handler thread. What asks for more at once than any client does
is refused before it is decoded, for one element of a byte can cost a kilobyte of memory and ten microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.protocol.api_keys import ApiKey


class Place(Enum):
    """What becomes of a request."""

    HERE = "served on the network thread"
    HANDLER = "served by a handler thread"
    REFUSED = "not decoded"


@dataclass(frozen=True, slots=True)
class Rule:
    """Bounds of one API: bytes of the body and elements of all its arrays together, those in elements too.

    An element of the dearest APIs takes 12 µs (DescribeGroups, FindCoordinator), so 512 hold the network thread for
    a few milliseconds; 100,000 hold a handler for a second. ``for_brokers``: only brokers may send it, and it is served
    by handlers of its own, so that no work of clients keeps a broker from what its controller tells it. Those of more
    than ``alone_bytes`` are so one at a time: several that compute leave the network thread little. ``blocks``: its
    handler waits for ZooKeeper with each element, and computes in between. Up to so many bytes several run at once; the
    larger ones of all such APIs run one at a time on a thread of their own, so that neither eight of them compute at
    once nor what only computes waits for ZooKeeper with them. ``asks_only``: it changes nothing, and need not be served
    when who asked has gone.
    """

    here_bytes: int = 16 * 1024
    here_elements: int = 512
    most_elements: int = 100_000
    for_brokers: bool = False
    alone_bytes: int = 16 * 1024
    blocks: int = 0
    asks_only: bool = False

    def place(self, size: int, elements: int) -> Place:
        """Of a body of ``size`` bytes; ``elements`` may be any number above the bound where there are more."""
        if elements > self.most_elements:
            return Place.REFUSED
        if size > self.here_bytes or elements > self.here_elements:
            return Place.HANDLER
        return Place.HERE


_ON_HANDLERS: Final = -1  # bytes: no body is as small
_UNBOUNDED: Final = (1 << 31) - 1
_ASKS: Final = Rule(asks_only=True)
_ASKS_HANDLERS: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, asks_only=True)
_COMPUTES: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0)
# 2 KiB are 20 topics with configs, or 700 names of a letter, and 40 ms. All configs of a broker take 35 ms to tell for
# the first time, those of a topic 4 ms, and are asked for by 8 bytes.
_ADMIN: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, blocks=2 * 1024)
_ASKS_ADMIN: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, blocks=64, asks_only=True)
# What brokers tell of all their partitions: each names up to five replicas twice (assigned, in sync), so this is enough
# for 200,000 partitions in one request.
_BROKERS: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, most_elements=2_200_000, for_brokers=True)
# What a broker asks for itself: no arrays but tags.
_OF_ONE_BROKER: Final = Rule(here_bytes=_ON_HANDLERS, here_elements=0, most_elements=1_000, for_brokers=True)

RULES: Final[Mapping[ApiKey, Rule]] = {
    # Records and positions are read where they lie: bytes cost nothing, partitions a few microseconds each.
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
    ApiKey.LEAVE_GROUP: Rule(here_elements=64),  # each of its members is looked for in the group: 6 µs
    ApiKey.SYNC_GROUP: Rule(),
    ApiKey.DESCRIBE_GROUPS: _ASKS_HANDLERS,  # one name can ask for megabytes of members
    ApiKey.LIST_GROUPS: _ASKS_HANDLERS,  # all groups there are
    ApiKey.API_VERSIONS: Rule(here_bytes=_UNBOUNDED),
    ApiKey.CREATE_TOPICS: _ADMIN,
    ApiKey.DELETE_TOPICS: _ADMIN,
    ApiKey.INIT_PRODUCER_ID: Rule(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(here_elements=128, asks_only=True),
    ApiKey.DESCRIBE_CONFIGS: _ASKS_ADMIN,
    ApiKey.DESCRIBE_LOG_DIRS: _ASKS_HANDLERS,  # all partitions there are
    ApiKey.CREATE_PARTITIONS: _ADMIN,
    ApiKey.DELETE_GROUPS: Rule(),
    ApiKey.ELECT_LEADERS: _COMPUTES,  # the controller's thread does the rest, and waits
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ADMIN,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _COMPUTES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _ASKS_HANDLERS,
    ApiKey.ALTER_PARTITION: _BROKERS,
    ApiKey.DESCRIBE_CLUSTER: _ASKS,
    ApiKey.ALLOCATE_PRODUCER_IDS: _OF_ONE_BROKER,
}
