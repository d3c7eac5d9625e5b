"""A script's requests: in which versions and in which order."""

from __future__ import annotations

import pytest

from broker.protocol.api_keys import APIS, ApiKey
from tests.differential.script import At, Script, Step, answer_to, constant
from tests.differential.scripts.all import SCRIPTS
from tests.differential.walk import Walk
from tests.support.valid_requests import World

HEARTBEAT = Step("beat", ApiKey.HEARTBEAT, constant(group_id="g"), (0, 4))
LEAVE = Step("leave", ApiKey.LEAVE_GROUP, versions=(1,))


def test_each_step_is_sent_in_all_its_versions() -> None:
    turns = Script("s", [HEARTBEAT, LEAVE]).turns()
    assert [(turn.step.name, turn.version, turn.round) for turn in turns] == [
        ("beat", 0, 0),
        ("beat", 4, 4),
        ("leave", 1, 1),
    ]


def test_in_rounds_each_step_is_sent_once_in_a_round() -> None:
    turns = Script("s", [HEARTBEAT, LEAVE], in_rounds=True).turns()
    assert [(turn.step.name, turn.version, turn.round) for turn in turns] == [
        ("beat", 0, 0),
        ("leave", 1, 0),
        ("beat", 4, 1),
        ("leave", 1, 1),
    ]


def test_a_step_without_versions_has_all_of_its_api() -> None:
    assert list(Step("any", ApiKey.LEAVE_GROUP).all_versions()) == [0, 1, 2, 3, 4, 5]


def test_a_change_replaces_fields_of_the_valid_request() -> None:
    body = HEARTBEAT.body(At(0, 0, World(), {}))
    assert (body["group_id"], body["member_id"]) == ("g", "stranger")


def test_an_answer_that_was_not_awaited_is_taken_by_a_step_of_its_own() -> None:
    pending = Step("join", ApiKey.JOIN_GROUP, pends=True)
    taken = answer_to(pending)
    assert (taken.name, taken.takes, taken.pends) == ("answer to: join", "join", False)


def test_names_of_steps_are_unique() -> None:
    with pytest.raises(ValueError, match="two steps named beat"):
        Script("s", [HEARTBEAT, HEARTBEAT])


def test_every_api_is_asked_in_every_version() -> None:
    asked = {(turn.step.key, turn.version) for script in SCRIPTS for turn in script.turns()}
    assert asked == {
        (api.key, v) for api in APIS.values() for v in range(api.min_version, api.max_version + 1)
    }


def test_a_walk_repeats_itself() -> None:
    def names(seed: int) -> list[tuple[str, int]]:
        walk = Walk(seed)
        return [(turn.step.name, turn.version) for turn in (walk.step() for _ in range(50))]

    assert names(1) == names(1) != names(2)
