"""Duplicates are the producer's own only where each copy stands in a producer epoch of its own."""

from __future__ import annotations

import pytest

from chaos.checker import check
from chaos.history import Acked, History, Polled, Sent
from chaos.resent import ReplicaLogs, resent_by_client
from tests.support.logs import batch, open_log


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path)


def history_of_a_duplicate():
    """Record p-0 was sent once and read at offsets 0 and 1."""
    events = [
        Sent("p", "p-0", "t"),
        Acked("p", "p-0", 0, 0, "t"),
        *(Polled("c", 0, offset, "p-0", "t") for offset in (0, 1)),
    ]
    return History(events, frozenset({"p"}))


def verdict(log):
    history = history_of_a_duplicate()
    found = check(history)
    assert [anomaly.kind.value for anomaly in found] == ["duplicate"]
    return resent_by_client(found, history, ReplicaLogs({1: log.dir.parent})) == set(found)


def test_a_record_sent_again_in_a_new_epoch_is_the_producers_own_duplicate(log):
    log.append_as_leader(batch(b"p-0", producer_id=7, producer_epoch=0, base_sequence=0), 0)
    log.append_as_leader(batch(b"p-0", producer_id=7, producer_epoch=1, base_sequence=0), 0)
    assert verdict(log)


def test_a_duplicate_within_one_epoch_is_the_brokers(log):
    log.append_as_leader(batch(b"p-0", producer_id=7, producer_epoch=0, base_sequence=0), 0)
    log.append_as_leader(batch(b"p-0", producer_id=7, producer_epoch=0, base_sequence=1), 0)
    assert not verdict(log)


def test_a_duplicate_that_the_files_do_not_hold_is_not_explained(log):
    log.append_as_leader(batch(b"p-0", producer_id=7, producer_epoch=0, base_sequence=0), 0)
    assert not verdict(log)
