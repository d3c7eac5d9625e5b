"""Three brokers of each kind answer alike: the wrong one to ask, and all while partitions move and brokers are away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from rig.zookeeper import ZooKeeperServer
from tests.differential.compare import Finding, Ledger
from tests.differential.differences import OPEN, TABLE
from tests.differential.scripts.three_brokers import (
    ELSEWHERE,
    MOVES_OF_THREE,
    MOVES_UNDER_WAY,
    THIRD,
    WITHOUT_THE_THIRD,
)
from tests.differential.sides import AGAINST, Both
from tests.differential.three import OfThree, three_of_each
from tests.differential.three_differences import OF_THREE

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(AGAINST == "landline", reason="two Landlines do not differ"),
]


@pytest.fixture(scope="module")
def both(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with three_of_each(
        zookeeper, tmp_path_factory.mktemp("three"), Ledger([*OF_THREE, *TABLE, *OPEN])
    ) as made:
        yield made


def sides_of(both: Both) -> list[OfThree]:
    return [cast("OfThree", side) for side in both.sides]


def told(found: list[Finding]) -> str:
    return "\n".join(map(str, found))


def test_a_broker_that_leads_and_coordinates_nothing_says_so(both: Both) -> None:
    found = both.run(ELSEWHERE)
    assert not found, told(found)


def test_partitions_move_and_change_leaders_alike_also_while_one_broker_stands_still_and_without_it(
    both: Both,
) -> None:
    found = both.run(MOVES_OF_THREE)
    third = [side.cluster.brokers[side.roles[THIRD]] for side in sides_of(both)]
    for broker in third:
        broker.freeze()
    found = both.go_on(MOVES_UNDER_WAY)
    for broker in third:
        broker.thaw()
        broker.stop()
    found = both.go_on(WITHOUT_THE_THIRD)
    assert not found, told(found)


def test_every_intended_difference_of_three_is_seen(both: Both) -> None:
    unseen = [each for each in both.ledger.unseen() if each in OF_THREE]
    assert not unseen, "\n".join(map(str, unseen))
