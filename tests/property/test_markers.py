"""Markers of the usual shape are read at fixed positions. Whatever the bytes are, that changes nothing."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from broker.log.producers.markers import TransactionMarker, build_marker, read_marker
from broker.protocol.errors import KafkaError
from broker.record.batch import BatchHeader, iter_records
from broker.record.header import HEADER_BYTES, read_header

_LARGEST = (1 << 31) - 1


def read_by_records(view: memoryview, header: BatchHeader) -> TransactionMarker | None:
    """The marker as the records say it, field by field. Raises struct.error if it is cut short."""
    for record in iter_records(view, header, 0):
        _, kind = struct.unpack_from(">hh", record.key or b"")
        if kind in (0, 1):
            _, epoch = struct.unpack_from(">hi", record.value or b"")
            return TransactionMarker(kind == 1, epoch)
    return None


@given(committed=st.booleans(), epoch=st.integers(0, _LARGEST))
def test_a_marker_reads_as_it_was_built(committed: bool, epoch: int) -> None:
    view = build_marker(5, 1, TransactionMarker(committed, epoch), 1_000)
    assert read_marker(view, 0, read_header(view)) == TransactionMarker(committed, epoch)


@given(
    changes=st.dictionaries(
        st.integers(HEADER_BYTES, len(build_marker(5, 1, TransactionMarker(True, 7), 1_000)) - 1),
        st.integers(0, 255) | st.sampled_from([0, 1, 2, 8, 12, 32]),
        max_size=3,
    ),
    count=st.sampled_from([0, 1, 2]),
)
@example(changes={HEADER_BYTES + 8: 2}, count=1)  # another type of control record
@example(changes={HEADER_BYTES + 16: 2}, count=1)  # a header that is not there
@example(changes={HEADER_BYTES + 4: 1, HEADER_BYTES + 5: 20, HEADER_BYTES + 16: 0}, count=1)  # no key
def test_a_changed_marker_reads_as_its_records_do(changes: dict[int, int], count: int) -> None:
    view = build_marker(5, 1, TransactionMarker(True, 7), 1_000)
    for position, value in changes.items():
        view[position] = value
    header = read_header(view)._replace(record_count=count)
    try:
        expected = read_by_records(view, header)
    except (KafkaError, struct.error) as error:
        expected_error: Exception | None = error
    else:
        expected_error = None
    try:
        found = read_marker(view, 0, header)
    except KafkaError:
        assert expected_error is not None
    else:
        assert expected_error is None
        assert found == expected
