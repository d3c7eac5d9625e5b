"""What a connection costs the network thread: its dearest visits are remembered, and slowly forgotten."""

from __future__ import annotations

from broker.network.shares import DEAR_NS, DearAddresses, cost_after


def test_who_asks_cheap_and_dear_things_by_turns_stays_dear() -> None:
    cost = DEAR_NS
    for _ in range(100):
        for spent in (5_000_000, 10_000, 10_000, 10_000):
            cost = cost_after(cost, spent)
            assert cost > DEAR_NS


def test_who_was_dear_is_cheap_after_some_cheap_visits_and_then_not_looked_at_any_more() -> None:
    costs = [5_000_000]
    while costs[-1]:
        costs.append(cost_after(costs[-1], 20_000))
    assert len(costs) < 50
    assert costs == sorted(costs, reverse=True)
    assert any(0 < cost <= DEAR_NS for cost in costs)


def test_addresses_are_forgotten_in_time() -> None:
    addresses = DearAddresses()
    addresses.add("10.0.0.1", 0)
    addresses.add("10.0.0.2", 5_000)
    addresses.forget_old(10_000)
    assert addresses.first_cost("10.0.0.1") == 0
    assert addresses.first_cost("10.0.0.2") > DEAR_NS


def test_how_many_addresses_are_remembered_is_bounded() -> None:
    addresses = DearAddresses()
    for number in range(20_000):
        addresses.add(str(number), 0)
    assert sum(addresses.first_cost(str(number)) > 0 for number in range(20_000)) == 10_000
