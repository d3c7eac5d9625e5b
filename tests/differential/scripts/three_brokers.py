"""Three brokers: what one of them answers that is the wrong one to ask, and how partitions move and change leaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.protocol.api_keys import APIS, ApiKey
from tests.differential.plain import Plain
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.records import fetched
from tests.differential.scripts.shapes import (
    BROKER_KIND,
    assigned,
    batch,
    new_topic,
    per_partition,
    produced,
    resources,
)

CONTROLLER: Final = "controller"
ASKED, THIRD = "asked", "third"
# They say who leads what, so they would change what the others are asked for.
_OF_CONTROLLERS: Final = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)


def _at_once(_answer: Plain) -> bool:
    """The answer counts that a client would ask again for: that this broker is the wrong one."""
    return True


def _about(role: str, **more: Any) -> Change:
    """A request about the configs of the broker of a role."""
    return lambda at: resources(str(at.world.roles[role]), BROKER_KIND, **more)


_A_CONFIG: Final = {"name": "log.cleaner.threads", "config_operation": 0, "value": "1"}
ELSEWHERE: Final = Script(
    "every request elsewhere",
    [
        *(
            # Producer ids come from the controller, after a while.
            Step(api.name, api.key, settles=None if api.key is ApiKey.INIT_PRODUCER_ID else _at_once)
            for api in APIS.values()
            if api.key not in _OF_CONTROLLERS
        ),
        Step(
            "configs of another broker",
            ApiKey.DESCRIBE_CONFIGS,
            _about(THIRD, configuration_keys=["broker.id"]),
        ),
        Step(
            "change of another broker", ApiKey.INCREMENTAL_ALTER_CONFIGS, _about(THIRD, configs=[_A_CONFIG])
        ),
        Step(
            "change of another broker, as of old",
            ApiKey.ALTER_CONFIGS,
            _about(THIRD, configs=[{"name": "log.cleaner.threads", "value": "1"}]),
        ),
    ],
)


def _made(**topics: Sequence[Sequence[str]]) -> Change:
    """Topics by the roles of each partition's replicas."""

    def change(at: At) -> Fields:
        rows = [
            assigned(name, *([at.world.roles[role] for role in replicas] for replicas in partitions))
            for name, partitions in topics.items()
        ]
        return {"topics": rows}

    return change


def _move(topic: str, *roles: str, partition: int = 0, cancel: bool = False) -> Change:
    def change(at: At) -> Fields:
        replicas = None if cancel else [at.world.roles[role] for role in roles]
        rows = [{"partition_index": partition, "replicas": replicas}]
        return {"topics": [{"name": topic, "partitions": rows}], "timeout": 10_000}

    return change


def _elect(kind: int, topic: str, *partitions: int) -> Change:
    rows = [{"topic": topic, "partitions": list(partitions)}]
    return constant(election_type=kind, topic_partitions=rows, timeout=5_000)


def _seen(name: str, *topics: str, settles: Callable[[Plain], bool] | None = None) -> Step:
    change = constant(topics=[{"name": topic} for topic in topics], allow_auto_topic_creation=False)
    return Step(name, ApiKey.METADATA, change, (9,), settles=settles)


def _listed(name: str, settles: Callable[[Plain], bool] | None = None) -> Step:
    return Step(
        name, ApiKey.LIST_PARTITION_REASSIGNMENTS, constant(topics=None), settles=settles, to=CONTROLLER
    )


def _is_over(answer: Plain) -> bool:
    return not answer["topics"]


def _is_led(answer: Plain) -> bool:
    return all(row["leader_id"] >= 0 for topic in answer["topics"] for row in topic["partitions"])


def _reassign(name: str, change: Change) -> Step:
    return Step(name, ApiKey.ALTER_PARTITION_REASSIGNMENTS, change, to=CONTROLLER)


MOVES_OF_THREE: Final = Script(
    "moves between brokers",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            _made(spread=[[ASKED, THIRD], [THIRD, ASKED]], alone=[[THIRD]], growing=[[ASKED]]),
            (7,),
            to=CONTROLLER,
        ),
        _seen("made", "spread", "alone", "growing", settles=_is_led),
        _reassign("move to one more", _move("spread", ASKED, THIRD, CONTROLLER)),
        _listed("moved to one more", _is_over),
        _seen("seen on one more", "spread"),
        _reassign("move away", _move("spread", CONTROLLER, THIRD, partition=1)),
        _listed("moved away", _is_over),
        _seen("seen elsewhere", "spread", settles=_is_led),
        _reassign("other order", _move("spread", THIRD, ASKED, CONTROLLER)),
        _listed("ordered", _is_over),
        Step("elect the preferred", ApiKey.ELECT_LEADERS, _elect(0, "spread", 0), (2,), to=CONTROLLER),
        Step("elect it again", ApiKey.ELECT_LEADERS, _elect(0, "spread", 0), to=CONTROLLER),
        _seen("seen led by the preferred", "spread"),
        Step("elect an unclean one", ApiKey.ELECT_LEADERS, _elect(1, "spread", 0), (1, 2), to=CONTROLLER),
    ],
)
# While the third broker is stopped, so that what has to copy to it does not end.
MOVES_UNDER_WAY: Final = Script(
    "moves under way",
    [
        _reassign("begin", _move("growing", ASKED, THIRD)),
        _listed("under way"),
        _seen("seen under way", "growing"),
        _reassign("begin again", _move("growing", ASKED, THIRD)),
        _listed("under way again"),
        Step(
            "more partitions meanwhile",
            ApiKey.CREATE_PARTITIONS,
            constant(topics=[{"name": "growing", "count": 2, "assignments": None}]),
            to=CONTROLLER,
        ),
        _reassign("cancel", _move("growing", cancel=True)),
        _listed("cancelled", _is_over),
        _seen("seen cancelled", "growing"),
        _reassign("cancel again", _move("growing", cancel=True)),
    ],
)
_TO_THE_THIRD: Final = (
    ("produce", ApiKey.PRODUCE, constant(**produced("alone", batch(b"1")))),
    ("fetch", ApiKey.FETCH, fetched("alone")),
    ("list", ApiKey.LIST_OFFSETS, constant(**per_partition("alone", partition_index=0, timestamp=-1))),
    (
        "delete records",
        ApiKey.DELETE_RECORDS,
        constant(**per_partition("alone", partition_index=0, offset=0), timeout=500),
    ),
)


def _is_gone(answer: Plain) -> bool:
    return not _is_led(answer) and len(answer["brokers"]) == 2


# The third broker was stopped in an orderly way.
WITHOUT_THE_THIRD: Final = Script(
    "without the third",
    [
        _seen("seen without a leader", "alone", "spread", settles=_is_gone),
        *(Step(f"{name} without a leader", key, change) for name, key, change in _TO_THE_THIRD),
        Step("elect who is away", ApiKey.ELECT_LEADERS, _elect(0, "spread", 0), to=CONTROLLER),
        Step("elect without anybody", ApiKey.ELECT_LEADERS, _elect(1, "alone", 0), (1, 2), to=CONTROLLER),
        _reassign("move to who is away", _move("growing", ASKED, THIRD)),
        _reassign("move away from who is away", _move("spread", ASKED, CONTROLLER)),
        _listed("moved away from who is away", _is_over),
        _seen("seen without who is away", "spread"),
        Step(
            "make more replicas than brokers",
            ApiKey.CREATE_TOPICS,
            constant(topics=[new_topic("many", 1, 3)]),
            to=CONTROLLER,
        ),
        Step("cluster", ApiKey.DESCRIBE_CLUSTER),
    ],
)
