"""The load's transactional clients against librdkafka's own test brokers, which know transactions, but neither
isolation nor fencing nor a group's offsets in a transaction: the checker must find all of that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chaos import copying, transactional_producing
from chaos.anomalies import AnomalyKind
from chaos.checker import check
from chaos.client_process import LoadPlan, Records, Work
from chaos.copying import NAME, Copier
from chaos.final_log import read_final_log
from chaos.history import ABORTED, COMMITTED, Ended, Fenced, History, Trouble, merged
from chaos.history_file import TRANSACTIONAL, HistoryWriter, read_history
from chaos.transactional_producing import TransactionalProducer
from rig.wait import wait_until

pytestmark = pytest.mark.slow
TIMEOUT_S = 30.0


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    """Work on a broker that lives in the fixture's client."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = owner.list_topics(timeout=TIMEOUT_S).brokers.values()
    bootstrap = ",".join(f"{each.host}:{each.port}" for each in brokers)
    plan = LoadPlan(partitions=2, transactions_per_s=50)
    topics = ("transactions", "copies")
    for topic in topics:
        owner.list_topics(topic, timeout=TIMEOUT_S)
    paths = (tmp_path / "h.jsonl", tmp_path / "h.log")
    yield Work(bootstrap, plan, (), "g", *paths, {"log_level": 0}, topics)
    owner.flush(0)


def history_with(kinds: AbstractSet[AnomalyKind], work: Work) -> History:
    """Runs a producer and the copier until there are anomalies of these kinds."""
    stopping, written = threading.Event(), threading.Event()
    with HistoryWriter(work.history_path, dict.fromkeys(["txn0", NAME], TRANSACTIONAL)) as writer:
        records = Records(writer)
        producing = threading.Thread(
            target=TransactionalProducer("txn0", work, records, stopping).run, daemon=True
        )
        copying = threading.Thread(target=Copier(work, records, written).run, daemon=True)
        for thread in (producing, copying):
            thread.start()

        def all_have_happened() -> bool:
            records.flush()
            return {each.kind for each in check(read_history(work.history_path))} >= kinds

        wait_until(all_have_happened, TIMEOUT_S, 0.5, what="everything that is awaited has happened")
        for done, thread in ((stopping, producing), (written, copying)):
            done.set()
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
    final = read_final_log(work.bootstrap, work.transactional_topics, TIMEOUT_S)
    return merged([read_history(work.history_path), History(final)])


def test_the_checker_finds_all_that_a_broker_without_isolation_and_fencing_lets_clients_see(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_producing, "TAKEN_OVER", 0.3)
    monkeypatch.setattr(copying, "ABORTED", 0.5)
    seen_at_once = {AnomalyKind.ABORTED_READ, AnomalyKind.ZOMBIE, AnomalyKind.COMMIT_LOST}
    history = history_with(seen_at_once, work)
    assert {event.outcome for event in history.of_type(Ended)} >= {COMMITTED, ABORTED}
    assert list(history.of_type(Fenced))
    assert not list(history.of_type(Trouble))
    kinds = {anomaly.kind for anomaly in check(history)}
    assert kinds == seen_at_once | {AnomalyKind.COPIED_TWICE}
