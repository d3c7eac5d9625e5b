"""What clients use of their quotas, by a clock that stands still."""

from __future__ import annotations

import heapq
import random

import pytest

from broker.quotas import client_quota_manager
from broker.quotas.client_quota_manager import ClientQuotaManager, ControllerMutationQuotaManager
from broker.quotas.entities import DEFAULT, QuotaEntity
from broker.quotas.rate import UNLIMITED, Windows

ALICE = "User:alice"
ELEVEN, TWO = Windows(11, 1_000), Windows(2, 1_000)
ANY_CLIENT = QuotaEntity(None, DEFAULT)


def manager_of(bound: float, entity: QuotaEntity = ANY_CLIENT, **more: int) -> ClientQuotaManager:
    manager = ClientQuotaManager(ELEVEN, **more)
    manager.update(entity, bound)
    return manager


def test_a_client_within_its_quota_is_not_throttled() -> None:
    manager = manager_of(100)
    assert [manager.record(ALICE, "app", 500, 0) for _ in range(2)] == [0, 0]
    assert manager.record(ALICE, "app", 1, 0) == 10


def test_another_client_has_a_quota_of_its_own() -> None:
    manager = manager_of(100)
    assert manager.record(ALICE, "app", 2_000, 0) == 10_000
    assert manager.record(ALICE, "other", 1_000, 0) == 0


def test_the_throttle_time_may_have_a_bound() -> None:
    assert manager_of(100, most_ms=1_000).record(ALICE, "app", 2_000, 0) == 1_000


def sent_per_second(manager: ClientQuotaManager, connections: int, size: int) -> float:
    """What connections write that send whenever they may, each two milliseconds a request, after a minute."""
    begin_ms, end_ms = 60_000, 300_000
    due = [(0, number) for number in range(connections)]
    total = 0
    while due[0][0] < end_ms:
        now_ms, number = heapq.heappop(due)
        total += size if now_ms >= begin_ms else 0
        heapq.heappush(due, (now_ms + 2 + manager.record(ALICE, "app", size, now_ms), number))
    return total / (end_ms - begin_ms) * 1_000


@pytest.mark.parametrize("windows", [ELEVEN, TWO])
@pytest.mark.parametrize(
    ("connections", "size"), [(1, 50_000), (60, 100_000), (60, 1_000_000), (2_000, 10_000)]
)
def test_many_connections_write_no_more_together_than_one(
    windows: Windows, connections: int, size: int
) -> None:
    manager = ClientQuotaManager(windows, keeps_debts=True)
    manager.update(ANY_CLIENT, 1_000_000)
    assert sent_per_second(manager, connections, size) == pytest.approx(1_000_000, rel=0.05)


@pytest.mark.parametrize("windows", [ELEVEN, TWO])
def test_one_connection_is_throttled_as_by_kafka(windows: Windows) -> None:
    ours, kafkas = ClientQuotaManager(windows, keeps_debts=True), ClientQuotaManager(windows)
    chance = random.Random(19)
    for manager in (ours, kafkas):
        manager.update(ANY_CLIENT, 1_000)
    now_ms = 0
    for _ in range(2_000):
        value = chance.choice([1, 100, 1_000, 3_000])
        throttle_ms = ours.record(ALICE, "app", value, now_ms)
        assert throttle_ms == pytest.approx(kafkas.record(ALICE, "app", value, now_ms), abs=2)
        now_ms += throttle_ms + chance.choice([0, 5, 700])


@pytest.mark.parametrize(("connections", "cost_ms"), [(1, 5), (60, 20), (500, 1)])
def test_many_connections_take_hardly_more_of_a_thread_together_than_one(
    connections: int, cost_ms: int
) -> None:
    """Their quota is a tenth of it. By Kafka's rule sixty get all of it, because no throttle is above a second."""
    manager = ClientQuotaManager(ELEVEN, most_ms=1_000, keeps_debts=True)
    manager.update(ANY_CLIENT, 10)
    due = [(0, number) for number in range(connections)]
    free_ms = used_ms = 0
    while due[0][0] < 300_000:
        arrived_ms, number = heapq.heappop(due)
        free_ms = max(arrived_ms, free_ms) + cost_ms
        used_ms += cost_ms if free_ms > 60_000 else 0
        throttle_ms = manager.record(ALICE, "app", cost_ms / 10, free_ms)
        assert throttle_ms <= (1_000 if connections == 1 else 11_000)
        heapq.heappush(due, (free_ms + throttle_ms, number))
    assert used_ms / 240_000 == pytest.approx(0.1, rel=0.1)


def test_a_raised_quota_forgives_debts() -> None:
    manager = ClientQuotaManager(ELEVEN, keeps_debts=True)
    manager.update(ANY_CLIENT, 100)
    assert manager.record(ALICE, "app", 100_000, 0) == 990_000
    manager.update(ANY_CLIENT, 10_000)
    assert manager.record(ALICE, "app", 1_000, 0) == 100


def test_a_changed_quota_applies_to_what_was_used_before() -> None:
    manager = manager_of(1_000)
    assert manager.record(ALICE, "app", 2_000, 0) == 0
    manager.update(QuotaEntity("alice", "app"), 100)
    assert manager.bound(ALICE, "app", 0) == 100
    manager.update(QuotaEntity("alice", "app"), None)
    assert manager.bound(ALICE, "app", 0) == 1_000


def test_a_client_without_a_quota_is_measured_and_never_throttled() -> None:
    manager = manager_of(100, QuotaEntity(None, "app"))
    assert manager.record(ALICE, "other", 1e15, 0) == 0
    assert manager.bound(ALICE, "other", 0) == UNLIMITED
    assert manager.rates(0) == {("", "other"): 1e14}


def test_what_was_taken_back_does_not_count() -> None:
    manager = manager_of(100)
    assert manager.record(ALICE, "app", 2_000, 0) > 0
    manager.take_back(ALICE, "app", 2_000, 0)
    assert manager.record(ALICE, "app", 1_000, 0) == 0


def test_a_user_name_is_found_by_its_encoded_form() -> None:
    manager = manager_of(100, QuotaEntity("CN%3Da%20b", None))
    assert manager.record("User:CN=a b", None, 2_000, 0) == 10_000


def test_a_client_that_used_nothing_may_use_ten_seconds_at_once() -> None:
    assert manager_of(100).most_at_once(ALICE, "app", 0) == 1_000


def test_throttles_are_counted_until_they_end() -> None:
    manager = manager_of(100)
    manager.throttled(ALICE, "app", 500, 0)
    manager.throttled(ALICE, "app", 1_500, 0)
    assert manager.queue_size(499) == 2
    assert manager.queue_size(500) == 1
    assert manager.throttle_times(500) == {("", "app"): 1_000}
    assert manager.queue_size(1_500) == 0


def test_clients_not_seen_for_an_hour_are_forgotten() -> None:
    manager = manager_of(100)
    manager.record(ALICE, "app", 1, 0)
    manager.record(ALICE, "other", 1, 3_000_000)
    manager.forget_idle(3_600_000)
    assert list(manager.rates(3_600_000)) == [("", "other")]


def test_client_ids_without_end_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quota_manager, "_MOST_BYTES", 300_000)
    manager = manager_of(100)
    manager.record(ALICE, "first", 2_000, 0)
    for number in range(5_000):
        manager.record(ALICE, f"c{number}", 1, number // 10)
        if not number % 10:
            manager.record(ALICE, "busy", 1_000, number // 10)
    assert len(manager._sensors) < 300_000 / 2_500
    assert manager.record(ALICE, "busy", 1, 500) > 0, "who uses its quota is not forgotten"


def test_no_more_than_a_thousand_clients_are_exported() -> None:
    manager = manager_of(100)
    for number in range(1_100):
        manager.record(ALICE, f"c{number}", 1, number)
    exported = manager.rates(1_100)
    assert len(exported) == 1_000
    assert ("", "c1099") in exported
    assert ("", "c99") not in exported


def test_a_long_client_id_does_not_make_the_metrics_long() -> None:
    manager = manager_of(100)
    manager.record(ALICE, "x" * 30_000, 1, 0)
    assert list(manager.rates(0)) == [("", "x" * 256)]


def mutations(rate: float) -> ControllerMutationQuotaManager:
    manager = ControllerMutationQuotaManager(ELEVEN)
    manager.update(QuotaEntity("alice", None), rate)
    return manager


def test_a_strict_quota_lets_a_burst_through_and_then_refuses() -> None:
    manager = mutations(2)
    assert manager.take(ALICE, "app", 30, 0, strict=True) == (True, 0)
    assert manager.take(ALICE, "app", 1, 0, strict=True) == (False, 4_000)
    assert manager.take(ALICE, "app", 1, 3_999, strict=True) == (False, 1)
    assert manager.take(ALICE, "app", 1, 4_000, strict=True) == (True, 0)
    assert manager.tokens(4_000) == {("alice", ""): pytest.approx(-1)}


def test_a_permissive_quota_lets_all_through_and_throttles() -> None:
    manager = mutations(2)
    assert manager.take(ALICE, "app", 30, 0, strict=False) == (True, 4_000)
    assert manager.take(ALICE, "app", 2, 0, strict=False) == (True, 5_000)
    assert manager.rates(0) == {("alice", ""): 3.2}


def test_without_a_quota_of_mutations_nothing_is_refused() -> None:
    manager = mutations(2)
    assert manager.take("User:bob", "app", 1e6, 0, strict=True) == (True, 0)
    assert manager.take("User:bob", "app", 1e6, 0, strict=True) == (True, 0)


def test_throttles_of_clients_that_reconnect_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.quotas.client_quota_manager._MOST_THROTTLES", 3)
    manager = manager_of(1.0)
    for _ in range(5):
        manager.throttled("User:alice", "app", 86_400_000, 0)
    assert manager.queue_size(0) == 3
    assert manager.queue_size(86_400_000) == 0


def test_long_client_ids_share_their_users_quota_and_are_not_remembered() -> None:
    manager = manager_of(100, QuotaEntity("alice", None))
    for number in range(10):
        manager.record(ALICE, f"{number}" * 30_000, 100, 0)
    assert manager.record(ALICE, "app", 1, 0) == 10
    assert list(manager._known) == [(ALICE, "app")]
