"""What two brokers of one behaviour still answer differently: ids, ports, directories, texts and times.

Each broker has a :class:`Normaliser` of its own. It gives ids numbers in the order in which they appear, so an id
that appears again must be the same id. Texts of errors are only there or not; Kafka's words are Kafka's.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.plain import NO_ID, Plain

# Fields by what replaces their values. Of these only whether there is one is compared;
# an empty text is none.
MASKED: Final[Mapping[str, str]] = {
    "throttle_time": "a time",
    "cluster_id": "an id",
    "error_message": "a text",
    "batch_index_error_message": "a text",
    "documentation": "a text",
    "transaction_start_time": "a time",
    "session_id": "an id",
    "total_bytes": "a size",
    "usable_bytes": "a size",
    "last_timestamp": "a time",
    "log_append_time": "a time",
    "finalized_features_epoch": "an epoch",
    "producer_id_start": "an id",
}
_NOTHING: Final = (None, "", 0, -1)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}(?===)")


class Normaliser:
    """The memory of one broker's ids. ``paths`` are its directories, ``port`` and ``broker_id`` its own."""

    def __init__(self, port: int, broker_id: int = 1, paths: Sequence[str] = ()) -> None:
        self._port = port
        self._broker_id = broker_id
        self._paths = paths
        self._producer_ids: list[int] = []
        self._uuids: list[str] = []
        self._topic_ids: dict[str, str] = {}
        self._lives: defaultdict[str, int] = defaultdict(int)

    def normalise(self, answer: Plain) -> Plain:
        """The answer in the words that both brokers share."""
        if isinstance(answer, list):
            return [self.normalise(each) for each in answer]
        if not isinstance(answer, dict):
            return answer
        self._learn_topic(answer)
        return {name: self._field(name, value) for name, value in answer.items()}

    def _field(self, name: str, value: Plain) -> Plain:
        if name in MASKED:
            nothing = None if value == "" else value
            return nothing if value in _NOTHING else MASKED[name]
        if isinstance(value, (list, dict)):
            return self.normalise(value)
        if name == "port" and value == self._port:
            return "its port"
        if name in {"node_id", "broker_id", "leader_id", "controller_id"} and value == self._broker_id:
            return "its id"
        if name == "topic_id":
            return self._topic_ids.get(value, "none" if value in {NO_ID, None} else "an unknown id")
        if name == "producer_id" and value >= 0:
            return f"producer {_number(value, self._producer_ids)}"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, value: str) -> str:
        for path in self._paths:
            value = value.replace(path, "DIRECTORY")
        return _UUID.sub(lambda found: f"UUID {_number(found[0], self._uuids)}", value)

    def _learn_topic(self, row: Mapping[str, Any]) -> None:
        """A topic that was deleted and created again has another id."""
        name, topic_id = row.get("name"), row.get("topic_id")
        if name and topic_id not in {None, NO_ID} and topic_id not in self._topic_ids:
            self._lives[name] += 1
            self._topic_ids[str(topic_id)] = f"id {self._lives[name]} of {name}"


def _number(value: Any, known: list[Any]) -> int:
    if value not in known:
        known.append(value)
    return known.index(value)


def topic_id(answer: Plain) -> uuid.UUID:
    """The id in an answer of CreateTopics."""
    return uuid.UUID(answer["topics"][0]["topic_id"])


def is_read(key: ApiKey) -> bool:
    """Whether a request changes nothing, so that it can be asked again until both brokers have caught up."""
    return key in _READS


_READS: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
