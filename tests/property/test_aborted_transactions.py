"""What one pass over the batches says of aborted transactions is what a look at each of them alone says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker.log.cleaning.aborts import AbortedRanges, first_refuted
from broker.log.results import AbortedTransaction
from broker.record.header import BatchHeader, read_header
from tests.support.transactions import ABORT, marker, transactional

PIDS = st.integers(0, 2)
DATA = read_header(transactional(b"v", pid=0))
MARKER = read_header(marker(ABORT, 0))
# The gap before a batch, its last offset delta, its producer, and whether it is a marker.
BATCHES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), PIDS, st.booleans()), max_size=12)
TRANSACTIONS = st.lists(
    st.builds(
        lambda pid, first, length: AbortedTransaction(pid, first, first + length, first + length + 1),
        PIDS,
        st.integers(0, 30),
        st.integers(1, 20),
    ),
    max_size=6,
)


def placed(batches: list[tuple[int, int, int, bool]]) -> list[BatchHeader]:
    headers, offset = [], 0
    for gap, delta, pid, is_marker in batches:
        kind = MARKER if is_marker else DATA
        header = kind._replace(
            base_offset=offset + gap, last_offset_delta=0 if is_marker else delta, producer_id=pid
        )
        headers.append(header)
        offset = header.next_offset
    return headers


def is_borne_out(transaction: AbortedTransaction, headers: Sequence[BatchHeader]) -> bool:
    within = [header for header in headers if header.last_offset >= transaction.first_offset]
    within = [header for header in within if header.base_offset < transaction.last_offset]
    own = [header for header in within if header.producer_id == transaction.producer_id]
    if any(header.is_control for header in own):
        return False
    first = next(iter(within), None)
    return first is None or first in own or first.base_offset > transaction.first_offset


@given(BATCHES, TRANSACTIONS)
def test_a_transaction_is_refuted_if_and_only_if_it_is_alone(
    batches: list[tuple[int, int, int, bool]], transactions: list[AbortedTransaction]
) -> None:
    headers = placed(batches)

    def headers_for(offset: int) -> Iterator[BatchHeader]:
        before = [number for number, header in enumerate(headers) if header.base_offset <= offset]
        return iter(headers[before[-1] if before else 0 :])

    refuted = first_refuted(transactions, headers_for)
    wrong = [transaction for transaction in transactions if not is_borne_out(transaction, headers)]
    assert (refuted in wrong) if wrong else refuted is None


@given(BATCHES, TRANSACTIONS)
def test_a_batch_is_in_the_ranges_if_and_only_if_it_is_in_one_of_them(
    batches: list[tuple[int, int, int, bool]], transactions: list[AbortedTransaction]
) -> None:
    ranges = AbortedRanges(transactions)
    for header in placed(batches):
        spans = any(
            transaction.producer_id == header.producer_id
            and transaction.first_offset <= header.base_offset <= transaction.last_offset
            for transaction in transactions
        )
        assert (header in ranges) == (spans and not header.is_control)
