"""Landline answers what Apache Kafka 3.9.1 answers, but for the differences of one table.

Each script and each random walk sends the same requests to a broker of each kind. Every field of every answer is
compared. ``DIFFERENTIAL_SEED`` is the first seed of the ``DIFFERENTIAL_WALKS`` walks.
``DIFFERENTIAL_AGAINST=landline`` compares two Landlines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from broker.protocol.api_keys import APIS, OF_CONSUMER_GROUPS
from tests.differential.compare import Ledger
from tests.differential.differences import OPEN, TABLE
from tests.differential.script import Script, Turn
from tests.differential.scripts.all import SCRIPTS
from tests.differential.sides import AGAINST, Both, both_sides
from tests.differential.walk import Walk

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
SEED, WALKS = (
    int(os.environ.get(f"DIFFERENTIAL_{name}", usual)) for name, usual in (("SEED", "0"), ("WALKS", "3"))
)
STEPS = 100
LAST_KEY = 87
"""The last one that Kafka 3.9 knows: ReadShareGroupStateSummary."""
NOT_SERVED = [key for key in (*range(-1, LAST_KEY + 2), 1000) if key not in APIS or key in OF_CONSUMER_GROUPS]
_done: set[str] = set()


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    def zookeeper() -> object:
        return request.getfixturevalue("zookeeper")

    with both_sides(zookeeper, tmp_path_factory.mktemp("differential"), Ledger([*TABLE, *OPEN])) as made:
        yield made


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name.replace(" ", "-"))
def test_a_script_gets_the_same_answers(script: Script, both: Both) -> None:
    found = both.run(script)
    _done.add(script.name)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("seed", range(SEED, SEED + WALKS))
def test_a_random_walk_gets_the_same_answers_and_ends_in_the_same_state(seed: int, both: Both) -> None:
    walk, history = Walk(seed), []
    repeated = f"make differential SEED={seed} repeats this"
    both.begin()

    def same(turn: Turn) -> None:
        both.take(turn, "random walk")
        assert not both.found, "\n".join([repeated, *history[-15:], "differs:", *map(str, both.found)])

    for _ in range(STEPS):
        turn = walk.step()
        history.append(f"{turn.step.name} (version {turn.version})")
        same(turn)
        for question in walk.state():
            same(question)
    for question in walk.records():
        same(question)
    both.look_at_files(walk.existing, "random walk")
    _done.add("random walk")
    assert not both.found, "\n".join([repeated, *map(str, both.found)])


@pytest.mark.parametrize("key", NOT_SERVED)
def test_an_api_that_is_not_of_zookeepers_mode_gets_the_same_end(key: int, both: Both) -> None:
    theirs, ours = (side.end_of(key) for side in both.sides)
    assert ours == theirs


@pytest.mark.skipif(AGAINST == "landline", reason="two Landlines do not differ")
def test_every_intended_difference_is_seen(both: Both) -> None:
    if _done != {"random walk", *(script.name for script in SCRIPTS)}:
        pytest.skip("not all scripts and a random walk ran")
    unseen = both.ledger.unseen()
    assert not unseen, "\n".join(map(str, unseen))
