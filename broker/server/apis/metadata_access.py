"""Which topics a Metadata response may show to its principal, by the authorizer.

Topics that were asked for by name or id are refused one by one. From all topics, those that the principal may
not describe are left out. Both is computed once for each state of the cluster and the ACLs.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from broker.network.request_channel import Request
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from broker.server.access import Access
from broker.server.apis.metadata_bodies import Wanted
from broker.server.metadata_cache import Snapshot

_MOST_KEPT: Final = 256
_MOST_NAMED: Final = 1_000
_MOST_LETTERS: Final = 32_768  # of all names in a question: clients choose them, and one may have as many


class Shown(NamedTuple):
    """The topics to answer about (None: all), and the rows of those that are refused."""

    wanted: Wanted | None
    refused: list[Fields]


# Principal, address and listener, and the topics that it asked for: None means all.
_Question = tuple[str, str, str, Wanted | None]


class _Answers(NamedTuple):
    """What is shown of the requested topics, while neither the cluster nor the ACLs change. None means all."""

    snapshot: Snapshot | None
    version: object
    kept: dict[_Question, Wanted | None]


class VisibleTopics:
    """Remembers which topics Metadata shows to whom. Several threads may use it: a lost entry is only
    computed again.
    """

    def __init__(self) -> None:
        self._answers = _Answers(None, None, {})

    def shown(self, request: Request, wanted: Wanted | None, snapshot: Snapshot, access: Access) -> Shown:
        """Divides the requested topics. Whether a refused topic exists is not told."""
        version = access.authorizer.version()
        if version is None or (wanted is not None and not _may_keep(wanted)):
            return _divided(request, wanted, snapshot, access)
        answers = self._answers
        if (
            answers.snapshot is not snapshot
            or answers.version is not version
            or len(answers.kept) >= _MOST_KEPT
        ):
            answers = self._answers = _Answers(snapshot, version, {})
        asker = request.connection
        question = (asker.principal, asker.client_address, asker.listener_name, wanted)
        if question in answers.kept:
            return Shown(answers.kept[question], [])
        answer = _divided(request, wanted, snapshot, access)
        if not answer.refused:  # a denial is logged each time
            answers.kept[question] = answer.wanted
        return answer


visible_topics = VisibleTopics()


def _may_keep(wanted: Wanted) -> bool:
    """Whether the question is small enough to be kept."""
    return (
        len(wanted) <= _MOST_NAMED
        and sum(len(item) for item in wanted if isinstance(item, str)) <= _MOST_LETTERS
    )


def _divided(request: Request, wanted: Wanted | None, snapshot: Snapshot, access: Access) -> Shown:
    if wanted is None:
        visible = tuple(
            topic
            for topic in snapshot.topics
            if access.allows(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, told=False)
        )
        return Shown(None if len(visible) == len(snapshot.topics) else visible, [])
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
