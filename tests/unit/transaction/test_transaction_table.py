"""What is done with all transactional ids of a partition is done in parts: no step grows with their number."""

from __future__ import annotations

import pytest

from broker.coordinator.transaction.metadata import TransactionMetadata
from broker.coordinator.transaction.table import PARTS, TransactionTable
from broker.protocol.errors import Errors
from broker.record.batch import read_records
from tests.support.transaction_fakes import Harness

MANY = 20_000
WEEK_MS = 604_800_000


@pytest.fixture(scope="module")
def table() -> TransactionTable:
    made = TransactionTable()
    for number in range(MANY):
        made.put(TransactionMetadata(f"tx-{number}", number, 60_000, 1))
    return made


def test_a_part_has_its_share_and_all_parts_have_all(table: TransactionTable) -> None:
    parts = [table.part(number) for number in range(PARTS)]
    assert max(map(len, parts)) < 2 * MANY // PARTS
    names = [txn.transactional_id for part in parts for txn in part]
    assert sorted(names) == sorted(f"tx-{number}" for number in range(MANY))


def test_an_id_is_found_until_it_is_removed(table: TransactionTable) -> None:
    found = table.get("tx-17")
    assert found is not None
    table.remove("tx-17")
    assert (table.get("tx-17"), len(table)) == (None, MANY - 1)
    table.put(found)
    assert table.get("tx-17") is found
    with pytest.raises(KeyError):
        table.remove("no such id")


def test_what_is_cleared_is_told_by_its_weight() -> None:
    table = TransactionTable()
    weights = [100, 20, 3]
    for number, weight in enumerate(weights):
        txn = TransactionMetadata(f"tx-{number}", number, 60_000, 1)
        txn.weight = weight
        table.put(txn)
    assert table.clear() == sum(weights)
    assert len(table) == 0
    assert table.get("tx-0") is None


@pytest.fixture(scope="module")
def h() -> Harness:
    made = Harness()
    for number in range(MANY):
        assert made.init(name=f"tx-{number}").error is Errors.NONE
    return made


def test_the_search_for_time_outs_lets_other_tasks_run_after_ten_thousand_ids(h: Harness) -> None:
    h.coordinator.abort_timed_out()
    parts = 1
    while h.scheduler.run():
        parts += 1
    assert parts == 1 + MANY // 10_000


def test_ids_that_come_and_go_during_a_search_do_not_end_it(h: Harness) -> None:
    h.coordinator.abort_timed_out()
    for number in range(1_000):
        h.init(name=f"new-{number}")
    assert h.scheduler.run() == ["transaction-abort"]
    h.coordinator.abort_timed_out()
    while h.scheduler.run():
        pass
    h.coordinator.abort_timed_out()
    assert h.scheduler.run() == ["transaction-abort"], "the next round begins anew"


def test_a_list_is_found_while_it_is_read(h: Harness) -> None:
    listed = iter(h.coordinator.list_transactions([], [], -1).transactions)
    first = next(listed)
    assert h.state(first.transactional_id) == "Empty"
    later = {f"later-{number}" for number in range(100)}
    for name in later:
        h.init(name=name)
    assert later & {each.transactional_id for each in listed}, "but for those in the part that was being read"


def test_expired_ids_are_buried_a_few_hundred_at_once(h: Harness) -> None:
    before = len(h.appender.log(0).batches)
    h.advance(WEEK_MS)
    h.coordinator.remove_expired()
    buried = [len(read_records(batch)) for _, batch in h.appender.log(0).batches[before:]]
    assert sum(buried) > MANY
    assert max(buried) < 600
    assert h.memory.held == 0
