"""The requests of the cost test: each array of each version of each API, with any number of
smallest elements.

Where the smallest element would be rejected at once, the request around it names existing things: a topic, a
group. No request changes anything except its own groups.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.guard import smallest
from bench.guard.stage import frame
from broker.protocol.api_keys import APIS, ApiKey

FEW: Final = 1_000
SOME: Final = 10_000
MANY: Final = 99_000
"""The decoding limit, including the elements on the way to the array."""
TOO_MANY: Final = 200_000
TOPIC: Final = "cost"
_BY_ID_FROM: Final = 10
_ASKED_BY_ID_FROM: Final = 12
_VALIDATED_FROM: Final = 1
_TOPIC_RESOURCE: Final = 2
_ELEMENTS: Final[Mapping[tuple[ApiKey, str], Mapping[str, Any]]] = {
    (ApiKey.CREATE_TOPICS, "topics"): {"num_partitions": 1, "replication_factor": 1},
    (ApiKey.CREATE_PARTITIONS, "topics"): {"count": 2},
    (ApiKey.DESCRIBE_CONFIGS, "resources"): {"resource_type": _TOPIC_RESOURCE},
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources"): {"resource_type": _TOPIC_RESOURCE},
}


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """One array of one version of an API. ``path`` is its fields' names, joined by dots.

    Elements are all ``alike``, or all different: an answer may be built only once for a name that
    is repeated.
    """

    api: str
    version: int
    path: str
    alike: bool = True

    def __str__(self) -> str:
        return f"{self.api} v{self.version} {self.path}" + (", alike" if self.alike else "")

    @property
    def key(self) -> ApiKey:
        return _KEYS[self.api]


_KEYS: Final = {api.name: ApiKey(api.key) for api in APIS.values()}
_groups = itertools.count()


def pairs(*, share: bool = False) -> list[tuple[Asked, int]]:
    """The requests and their numbers of elements.

    Few and some for every version; the decoding limit and more than that for the newest, which has the most
    fields. A ``share``: few and some for the newest.
    """
    newest = everything(newest=True)
    if share:
        return [(asked, count) for asked in newest for count in (FEW, SOME)]
    large = set(newest)
    return [
        (asked, count)
        for asked in everything()
        for count in ((FEW, SOME, MANY, TOO_MANY) if asked in large else (FEW, SOME))
    ]


def everything(*, newest: bool = False) -> list[Asked]:
    """All arrays of all served versions, in order; optionally of the newest versions only."""
    return sorted(_arrays(newest=newest))


def without_arrays() -> set[str]:
    """The APIs that have no array in any version."""
    return set(_KEYS) - {asked.api for asked in everything()}


def request(asked: Asked, count: int, element: Mapping[str, Any] | None = None) -> bytes:
    """A whole request with ``count`` elements and its own group. ``element``: fields of each element."""
    path = tuple(asked.path.split("."))
    chosen = {**_element(asked), **(element or {})}
    body = smallest.body(
        asked.key, asked.version, path, count, given=_given(), element=chosen, distinct=not asked.alike
    )
    return frame(asked.key, asked.version, body)


def _arrays(*, newest: bool) -> Iterator[Asked]:
    for api in APIS.values():
        first = api.max_version if newest else api.min_version
        for version in range(first, api.max_version + 1):
            for path in smallest.array_paths(ApiKey(api.key), version):
                yield Asked(api.name, version, ".".join(path))
                if smallest.named_by(ApiKey(api.key), version, path) is not None:
                    yield Asked(api.name, version, ".".join(path), alike=False)


def _element(asked: Asked) -> Mapping[str, Any]:
    """The replacement for a smallest element that is rejected at once."""
    if asked.key is ApiKey.CREATE_TOPICS and asked.version < _VALIDATED_FROM:
        return {}  # it would be executed
    if asked.key is ApiKey.METADATA and asked.version >= _BY_ID_FROM and asked.alike:
        return {"topic_id": uuid.UUID(int=7)} if asked.version >= _ASKED_BY_ID_FROM else {"name": ""}
    return _ELEMENTS.get((asked.key, asked.path), {})


def _given() -> dict[str, Any]:
    return {
        "acks": -1,
        "group_id": f"cost-{next(_groups)}",
        "name": TOPIC,
        "topic": TOPIC,
        "topic_name": TOPIC,
        "replica_id": -1,
        "session_epoch": -1,
        "generation_id_or_member_epoch": -1,
        "session_timeout": 6_000,
        "rebalance_timeout": 6_000,
        "protocol_type": "consumer",
        "timeout": 1_000,
        "max_bytes": 1 << 20,
        "validate_only": True,
    }
