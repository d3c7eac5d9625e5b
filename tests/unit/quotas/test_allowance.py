"""Parts of a quota that connections use without asking, by a clock that stands still."""

from __future__ import annotations

from broker.quotas.allowance import VALID_NS, Allowance
from broker.quotas.client_quota_manager import ClientQuotaManager
from broker.quotas.entities import DEFAULT, QuotaEntity
from broker.quotas.rate import Windows

ALICE = "User:alice"
SECOND_NS = 1_000_000_000
NOW_NS = 50 * SECOND_NS
NOW_MS = 50_000
BOUND = 6_400
AT_ONCE = 10 * BOUND


def manager_of(bound: float = BOUND) -> ClientQuotaManager:
    manager = ClientQuotaManager(Windows(11, 1_000))
    manager.update(QuotaEntity(DEFAULT, None), bound)
    return manager


def allowed(manager: ClientQuotaManager, least: float = 100.0, now_ns: int = NOW_NS) -> Allowance:
    found = manager.allow(ALICE, "app", least, now_ns)
    assert found is not None
    return found


def test_a_connection_gets_a_part_of_what_is_left_for_a_moment() -> None:
    manager = manager_of()
    first = allowed(manager)
    assert (first.given, first.left, first.client_id) == (1_000, 1_000, "app")
    assert first.until_ns == NOW_NS + VALID_NS
    assert allowed(manager).given == (AT_ONCE - 1_000) / 64


def test_who_has_no_quota_is_measured_to_the_byte_too() -> None:
    manager = ClientQuotaManager(Windows(11, 1_000))
    manager.update(QuotaEntity("bob", None), BOUND)
    part = allowed(manager)
    assert part.given == 1_600, "of what it uses at least, sixteen times"
    part.left -= 1
    assert manager.rates(NOW_MS) == {("alice", ""): 0.1}


def test_what_is_recorded_is_not_given_again() -> None:
    manager = manager_of()
    assert manager.record(ALICE, "app", AT_ONCE / 2, NOW_MS) == 0
    assert allowed(manager).given == 500


def test_a_part_that_is_too_small_is_not_given() -> None:
    manager = manager_of()
    assert manager.allow(ALICE, "app", 1_001, NOW_NS) is None
    assert allowed(manager, 1_000).given == 1_000


def test_all_parts_together_and_what_is_recorded_are_within_the_quota() -> None:
    manager = manager_of()
    manager.record(ALICE, "app", 1_000, NOW_MS)
    parts = []
    while (part := manager.allow(ALICE, "app", 70, NOW_NS)) is not None:
        parts.append(part)
    together = sum(part.given for part in parts)
    assert AT_ONCE - 1_000 - 64 * 70 <= together <= AT_ONCE - 1_000


def test_what_was_used_is_recorded_once_and_the_rest_taken_back() -> None:
    manager = manager_of()
    part = allowed(manager)
    part.left -= 320
    for _ in range(2):
        part.settle()
    assert manager.rates(NOW_MS) == {("alice", ""): 32}
    assert part.until_ns == 0, "nobody uses it any longer"
    assert allowed(manager).given == (AT_ONCE - 320) / 64


def test_what_was_used_can_be_seen_before_it_is_settled() -> None:
    manager = manager_of()
    part = allowed(manager)
    part.left -= 320
    assert [manager.rates(NOW_MS) for _ in range(2)] == [{("alice", ""): 32}] * 2
    part.left -= 320
    part.settle()
    assert manager.rates(NOW_MS) == {("alice", ""): 64}


def test_near_the_quota_all_parts_are_called_back_and_count() -> None:
    manager = manager_of()
    parts = [allowed(manager) for _ in range(3)]
    for part in parts:
        part.left -= 900
    assert manager.record(ALICE, "app", AT_ONCE - 2_700, NOW_MS) == 0, "just used up"
    assert [part.until_ns for part in parts] == [0, 0, 0]
    assert manager.record(ALICE, "app", BOUND, NOW_MS) == 1_000
    parts[0].settle()
    assert manager.record(ALICE, "app", 0, NOW_MS) == 1_000, "they counted once"


def test_a_lower_quota_calls_parts_back_at_the_next_record() -> None:
    manager = manager_of()
    part = allowed(manager)
    part.left -= 640
    manager.update(QuotaEntity(DEFAULT, None), 64)
    assert manager.record(ALICE, "app", 64, NOW_MS) == 1_000
    assert part.until_ns == 0


def test_what_connections_do_not_use_in_time_is_given_to_others() -> None:
    manager = manager_of()
    parts = [allowed(manager, 500) for _ in range(45)]
    parts[0].left -= 640
    assert manager.allow(ALICE, "app", 500, NOW_NS) is None
    assert manager.allow(ALICE, "app", 500, NOW_NS + VALID_NS) is None, "they are still valid"
    later = allowed(manager, 500, NOW_NS + 2 * VALID_NS)
    assert later.given == (AT_ONCE - 640) / 64
    assert {part.until_ns for part in parts} == {0}
    assert manager.rates(NOW_MS) == {("alice", ""): 64}


def test_who_has_debts_gets_no_part_and_loses_those_that_are_out() -> None:
    manager = ClientQuotaManager(Windows(11, 1_000), keeps_debts=True)
    manager.update(QuotaEntity(DEFAULT, None), BOUND)
    part = allowed(manager)
    assert manager.record(ALICE, "app", 2 * AT_ONCE, NOW_MS) > 0
    assert part.until_ns == 0
    expired_ns = NOW_NS + 12 * SECOND_NS
    assert manager.record(ALICE, "app", 1, expired_ns // 1_000_000) == 0, "the debt of ten seconds is paid"
    assert allowed(manager, now_ns=expired_ns).given > 0
    manager.record(ALICE, "app", 2 * AT_ONCE, expired_ns // 1_000_000)
    assert manager.allow(ALICE, "app", 1, expired_ns + SECOND_NS) is None


def test_long_client_ids_are_not_kept_for_each_connection() -> None:
    assert manager_of().allow(ALICE, "a" * 257, 1, NOW_NS) is None
