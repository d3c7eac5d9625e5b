"""Parts of requests that several scripts send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.record.batch import Record, build_batch
from tests.support.times import NOW_MS

TOPIC_KIND: Final = 2
BROKER_KIND: Final = 4
Row = dict[str, Any]


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> Row:
    """A topic for CreateTopics; ``configs`` is a mapping."""
    configs: Mapping[str, str | None] = more.pop("configs", {})
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
        **more,
    }


def assigned(name: str, *replicas: Sequence[int], first: int = 0) -> Row:
    """A topic with an assignment of its own, from partition ``first`` on."""
    rows = [
        {"partition_index": number, "broker_ids": list(each)} for number, each in enumerate(replicas, first)
    ]
    return new_topic(name, -1, -1, assignments=rows)


def batch(*values: bytes, key: bytes | None = None, **options: Any) -> bytes:
    """Records of fixed times, so that both brokers get the same bytes."""
    return build_batch([Record(key, value, (), NOW_MS + n) for n, value in enumerate(values)], **options)


def produced(topic: str, records: bytes | None, partition: int = 0, **more: Any) -> Row:
    """The fields of Produce for one partition."""
    row = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
    return {"topic_data": [row], **more}


def per_partition(topic: str, name: str = "name", rows: str = "partitions", **fields: Any) -> Row:
    """The ``topics`` of a request with one partition."""
    return {"topics": [{name: topic, rows: [fields]}]}


def resources(name: str, kind: int = TOPIC_KIND, **more: Any) -> Row:
    """The ``resources`` of a request about configs, with one resource."""
    return {"resources": [{"resource_type": kind, "resource_name": name, **more}]}
