"""The valid request of every API in every version, as the tests of single versions send it."""

from __future__ import annotations

from broker.protocol.api_keys import APIS, ApiKey
from tests.differential.script import At, Fields, Script, Step
from tests.differential.scripts.shapes import new_topic


def _prepared(at: At) -> Fields:
    names = [f"extended-by-version-{n}" for n in range(4)] + [f"deleted-by-version-{n}" for n in range(7)]
    return {"topics": [new_topic(name) for name in names]}


EVERY_REQUEST = Script(
    "every request",
    [
        Step("topics to change", ApiKey.CREATE_TOPICS, _prepared, (7,)),
        *(Step(api.name, api.key) for api in APIS.values()),
    ],
)
