"""Which topics a Metadata response may show to its principal, by the authorizer.

Topics that were asked for by name or id are refused one by one. From all topics, those that the principal may
not describe are left out: they are computed once for each state of the cluster and the ACLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.network.request_channel import Request
from broker.protocol.codec import ZERO_UUID
from broker.protocol.control_messages import PartitionInfo
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from broker.server.access import Access
from broker.server.apis.metadata_bodies import Wanted
from broker.server.metadata_cache import Snapshot

_MOST_ASKERS: Final = 256


class Shown(NamedTuple):
    """The topics to answer about (None: all), and the rows of those that are refused."""

    wanted: Wanted | None
    refused: list[Fields]


_Asker = tuple[str, str, str]


class _SeenByAll(NamedTuple):
    """What each asker sees of all topics, while neither the topics nor the ACLs change."""

    topics: Mapping[str, Mapping[int, PartitionInfo]]
    version: object
    wanted: dict[_Asker, Wanted | None]


class VisibleTopics:
    """What each principal sees of all topics. Several threads may use it: a lost entry is only computed again."""

    def __init__(self) -> None:
        self._kept = _SeenByAll({}, None, {})

    def of(self, request: Request, snapshot: Snapshot, access: Access) -> Wanted | None:
        """The visible topics; None if all are visible, as usual."""
        version = access.authorizer.version()
        kept = self._kept
        if (
            kept.topics is not snapshot.topics
            or kept.version is not version
            or len(kept.wanted) >= _MOST_ASKERS
        ):
            kept = self._kept = _SeenByAll(snapshot.topics, version, {})
        asker = request.connection
        key = (asker.principal, asker.client_address, asker.listener_name)
        if version is not None and key in kept.wanted:
            return kept.wanted[key]
        visible = tuple(
            topic
            for topic in snapshot.topics
            if access.allows(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, told=False)
        )
        wanted = kept.wanted[key] = None if len(visible) == len(snapshot.topics) else visible
        return wanted


_visible = VisibleTopics()


def shown(request: Request, wanted: Wanted | None, snapshot: Snapshot, access: Access) -> Shown:
    """Divides the requested topics. Whether a refused topic exists is not told."""
    if wanted is None:
        return Shown(_visible.of(request, snapshot, access), [])
    named: list[Any] = []
    refused: list[Fields] = []
    for item in wanted:
        name = item if isinstance(item, str) else snapshot.topic_names.get(item)
        if name is None or access.allows(request, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            named.append(item)
        else:
            refused.append(refused_row(item))
    return Shown(tuple(named), refused)


def may_create(request: Request, name: str, access: Access | None) -> bool:
    """Whether the principal may create the topic, by asking for it."""
    return (
        access is None
        or access.allows(request, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, told=False)
        or access.allows(request, AclOperation.CREATE, ResourceType.TOPIC, name)
    )


def refused_row(item: Any) -> Fields:
    """The row of a topic that the principal may not see, by the name or the id that it gave."""
    by_name = isinstance(item, str)
    return {
        "error_code": Errors.TOPIC_AUTHORIZATION_FAILED,
        "name": item if by_name else None,
        "topic_id": ZERO_UUID if by_name else item,
        "is_internal": False,
        "partitions": [],
    }
