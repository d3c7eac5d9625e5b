"""The valid request of every API in every version, as the tests of single versions send it."""

from __future__ import annotations

from broker.protocol.api_keys import APIS, ApiKey
from tests.differential.script import At, Fields, Script, Step, constant
from tests.differential.scripts.shapes import new_topic


def _prepared(at: At) -> Fields:
    names = [f"extended-by-version-{n}" for n in range(4)] + [f"deleted-by-version-{n}" for n in range(7)]
    return {"topics": [new_topic(name) for name in names]}


_GIVEN_UP = [f"joined-by-version-{number}" for number in range(4, 10)]
EVERY_REQUEST = Script(
    "every request",
    [
        Step("topics to change", ApiKey.CREATE_TOPICS, _prepared, (7,)),
        *(Step(api.name, api.key) for api in APIS.values()),
        # Each broker would forget them at a time of its own, and other scripts list all groups.
        Step("groups that nobody joined", ApiKey.DELETE_GROUPS, constant(groups_names=_GIVEN_UP), (2,)),
    ],
)
_TO_BROKERS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
CONTROLLERS = Script(
    "requests of controllers",
    [
        Step(f"{key.name.lower()} {name}", key, constant(**{field: value}))
        for name, field, value in (
            ("of an earlier controller", "controller_epoch", 0),
            ("to an earlier life of the broker", "broker_epoch", 1),
        )
        for key in _TO_BROKERS
    ],
)
