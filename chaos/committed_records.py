"""What a consumer with read_committed may see of a partition, computed from the batches in its files. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from broker.log.producers.markers import read_marker
from broker.record.batch import BatchHeader, read_records
from chaos.values import id_of


def committed_records(batches: Iterable[tuple[BatchHeader, memoryview]]) -> dict[int, str]:
    """Record ids by offset: those of no transaction, and those of committed ones.

    Raises KafkaError when a batch is corrupt.
    """
    visible: dict[int, str] = {}
    undecided: dict[int, dict[int, str]] = defaultdict(dict)
    for header, data in batches:
        if header.is_control:
            marker = read_marker(data, 0, header)
            records = undecided.pop(header.producer_id, {}) if marker is not None else {}
            if marker is not None and marker.committed:
                visible.update(records)
            continue
        found = {record.offset: id_of(record.value or b"") for record in read_records(data)}
        (undecided[header.producer_id] if header.is_transactional else visible).update(found)
    return visible
