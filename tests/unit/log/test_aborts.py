"""Which batches are of aborted transactions, and what refutes such a transaction: in one look at each batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from broker.config.log_config import LogConfig
from broker.log.cleaning.aborts import AbortedRanges, first_refuted
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.results import AbortedTransaction
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.txn_index import ENTRY_BYTES
from broker.record.batch import read_records
from broker.record.header import BatchHeader, read_header
from tests.support.logs import batch, open_log, unlimited
from tests.support.transactions import ABORT, COMMIT, end, marker, transactional, write

PID = 7


class Step(int):
    """An offset that counts how often it was compared."""

    taken = 0

    def _counted(self) -> int:
        Step.taken += 1
        return int(self)

    def __lt__(self, other: int) -> bool:
        return self._counted() < other

    def __le__(self, other: int) -> bool:
        return self._counted() <= other

    def __gt__(self, other: int) -> bool:
        return self._counted() > other

    def __ge__(self, other: int) -> bool:
        return self._counted() >= other


def data(offset: int, pid: int = PID) -> BatchHeader:
    return read_header(transactional(b"v", pid=pid))._replace(base_offset=offset)


def ended(offset: int, pid: int = PID) -> BatchHeader:
    return read_header(marker(ABORT, pid))._replace(base_offset=offset)


def aborted(first_offset: int, last_offset: int, pid: int = PID) -> AbortedTransaction:
    return AbortedTransaction(pid, first_offset, last_offset, last_offset + 1)


class Batches:
    """The batches of a log. ``given`` counts those that were asked for."""

    def __init__(self, headers: Sequence[BatchHeader]) -> None:
        self._headers = headers
        self.given = 0

    def headers_for(self, offset: int) -> Iterator[BatchHeader]:
        for header in self._headers:
            if header.last_offset >= offset:
                self.given += 1
                yield header


def test_a_batch_is_of_an_aborted_transaction_of_its_producer_that_spans_it() -> None:
    ranges = AbortedRanges([aborted(20, 25), aborted(10, 15), aborted(12, 40, pid=8)])
    inside = [offset for offset in range(50) if data(offset) in ranges]
    assert inside == [*range(10, 16), *range(20, 26)]
    assert [offset for offset in range(50) if data(offset, 8) in ranges] == [*range(12, 41)]
    assert data(12, 9) not in ranges
    assert ended(12) not in ranges
    assert read_header(batch(b"v", producer_id=PID))._replace(base_offset=12) not in ranges


def test_ranges_that_overlap_hide_nothing_of_one_another() -> None:
    ranges = AbortedRanges([aborted(0, 30), aborted(5, 10), aborted(8, 12), aborted(40, 41), aborted(41, 45)])
    assert [offset for offset in range(60) if data(offset) in ranges] == [*range(31), *range(40, 46)]


def test_a_look_at_a_batch_takes_few_steps_however_many_transactions_its_producer_aborted() -> None:
    count = 4096
    ranges = AbortedRanges(aborted(2 * number, 2 * number + 1) for number in range(count))
    Step.taken = 0
    for number in range(0, count, 256):
        assert data(Step(2 * number)) in ranges
    assert 0 < Step.taken <= 16 * 16


def test_batches_are_read_once_however_many_transactions_are_under_way() -> None:
    pids = range(50)
    headers = [
        *(data(offset, pid) for offset, pid in enumerate(pids)),
        *(data(50 + offset) for offset in range(100)),
        *(ended(150 + pid, pid) for pid in pids),
    ]
    batches = Batches(headers)
    assert first_refuted([aborted(pid, 150 + pid, pid) for pid in pids], batches.headers_for) is None
    assert 0 < batches.given <= len(headers)


def test_batches_between_transactions_are_not_read() -> None:
    headers = [data(0), ended(1), *(data(offset, 9) for offset in range(2, 500)), data(500), ended(501)]
    batches = Batches(headers)
    assert first_refuted([aborted(500, 501), aborted(0, 1)], batches.headers_for) is None
    assert batches.given == 4


@pytest.mark.parametrize(
    ("headers", "is_refuted"),
    [
        ([data(10), data(11, 8), ended(12)], False),
        ([data(11, 8), ended(12)], False),  # its first batch was compacted away
        ([ended(12)], False),
        ([], False),
        ([data(10, 8), ended(12)], True),
        ([ended(10), ended(12)], True),
        ([data(10), ended(11), ended(12)], True),
        ([data(10), ended(11, 8), ended(12)], False),
    ],
)
def test_a_transaction_is_refuted_by_anothers_first_batch_and_by_a_marker_before_its_own(
    headers: list[BatchHeader], is_refuted: bool
) -> None:
    transaction = aborted(10, 12)
    around = [aborted(2, 40, pid=8), aborted(30, 31)]
    more = [data(2, 8), *headers, data(30), ended(31), ended(40, 8)]
    if ended(11, 8) in headers:
        around, more = [], headers
    found = first_refuted([transaction, *around], Batches(more).headers_for)
    assert found == (transaction if is_refuted else None)


def test_an_index_that_gives_a_transaction_the_begin_of_the_one_before_is_refused(tmp_path) -> None:
    log = open_log(tmp_path, LogConfig(cleanup_policy=frozenset({"compact"})))
    write(log, b"committed", pid=PID, key=b"k")
    end(log, COMMIT, PID)
    write(log, b"aborted", pid=PID, key=b"k", sequence=1)
    end(log, ABORT, PID)
    write(log, b"aborted", pid=PID, key=b"k", sequence=2)
    end(log, ABORT, PID)
    log.roll()
    log.append_as_leader(batch(b"active", key=b"active"), 0)
    log.high_watermark = log.log_end_offset
    index = log.segments[0].txn_index
    first, second = index.entries()

    def clean() -> None:
        clean_log(log, 0, log.segments[-1].base_offset, OffsetMap(1 << 20), now_ms=1, pace=unlimited())

    index.reset()
    index.append(first)
    index.append(second._replace(first_offset=0))
    with pytest.raises(DamagedError, match="no such transaction was aborted") as raised:
        clean()
    assert (raised.value.path, raised.value.position) == (index.path, ENTRY_BYTES)
    index.reset()
    index.append(first)
    index.append(second)
    clean()
    values = [record.value for record in read_records(log.read_bytes(0, 1 << 20)) if record.key == b"k"]
    assert values == [b"committed"]
