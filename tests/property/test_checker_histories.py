"""Random legal histories are clean; an anomaly planted in one is found, and nothing else is seen."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaos.anomalies import AnomalyKind, counts, summary
from chaos.checker import check
from chaos.history import History, merged
from tests.support import planted_transactions
from tests.support.legal_histories import legal_history
from tests.support.legal_transactions import legal_transactions
from tests.support.planted import PLANTS

SEEDS = st.integers(0, 2**32)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_a_legal_history_is_clean(seed: int) -> None:
    found = check(legal_history(random.Random(seed)))
    assert not found, summary(found)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_a_legal_history_of_transactions_is_clean_alone_and_beside_others(seed: int) -> None:
    rng = random.Random(seed)
    transactions = legal_transactions(rng)
    for history in (transactions, merged([transactions, legal_history(rng)])):
        assert not (found := check(history)), summary(found)


def assert_only_the_planted_kind_is_found(kind: AnomalyKind, planted: History | None) -> None:
    assume(planted is not None)
    assert planted is not None
    found = check(planted)
    assert set(counts(found)) == {kind}, summary(found)


@pytest.mark.parametrize("plant", PLANTS)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_one_planted_anomaly_is_found_and_no_other_kind_is_named(plant: str, seed: int) -> None:
    rng = random.Random(seed)
    kind, function = PLANTS[plant]
    assert_only_the_planted_kind_is_found(kind, function(rng, legal_history(rng)))


@pytest.mark.parametrize("plant", planted_transactions.PLANTS)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_one_planted_anomaly_of_transactions_is_found_and_no_other_kind_is_named(
    plant: str, seed: int
) -> None:
    rng = random.Random(seed)
    kind, function = planted_transactions.PLANTS[plant]
    assert_only_the_planted_kind_is_found(kind, function(rng, legal_transactions(rng)))


def test_every_kind_of_a_history_is_planted() -> None:
    plants = [*PLANTS.values(), *planted_transactions.PLANTS.values()]
    assert {kind for kind, _ in plants} == set(AnomalyKind) - {AnomalyKind.DIVERGED}
