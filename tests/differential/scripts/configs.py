"""Configs of topics and brokers: described, set, extended and taken away."""

from __future__ import annotations

from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.script import Change, Script, Step, constant
from tests.differential.scripts.shapes import BROKER_KIND, TOPIC_KIND, new_topic, resources

TOPIC: Final = "configured"
SET, DELETE, APPEND, SUBTRACT = range(4)
LOGGER_KIND: Final = 8
_DETAILS: Final = {"include_synonyms": True, "include_documentation": True}
_FEW: Final = ["retention.ms", "cleanup.policy", "max.message.bytes", "no.such.key"]
_BROKER_KEYS: Final = ["log.retention.ms", "background.threads", "message.max.bytes", "ssl.key.password"]


def _described(name: str, kind: int = TOPIC_KIND, keys: list[str] | None = None) -> Change:
    return constant(**resources(name, kind, configuration_keys=keys), **_DETAILS)


def _of_this_broker(**more: Any) -> Change:
    return lambda at: {**resources(str(at.world.broker_id), BROKER_KIND, **more), **_DETAILS}


DESCRIPTION = Script(
    "description of configs",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            constant(
                topics=[new_topic("described", configs={"retention.ms": "60000", "min.insync.replicas": "1"})]
            ),
            (7,),
        ),
        Step("all of a topic", ApiKey.DESCRIBE_CONFIGS, _described("described")),
        Step("some of a topic", ApiKey.DESCRIBE_CONFIGS, _described("described", keys=_FEW)),
        Step("none of a topic", ApiKey.DESCRIBE_CONFIGS, _described("described", keys=[])),
        Step("of an unknown topic", ApiKey.DESCRIBE_CONFIGS, _described("nowhere")),
        Step("of a bad name", ApiKey.DESCRIBE_CONFIGS, _described("a/b")),
        Step("of no name", ApiKey.DESCRIBE_CONFIGS, _described("")),
        Step("some of a broker", ApiKey.DESCRIBE_CONFIGS, _of_this_broker(configuration_keys=_BROKER_KEYS)),
        Step("of all brokers", ApiKey.DESCRIBE_CONFIGS, _described("", BROKER_KIND)),
        Step("of an unknown broker", ApiKey.DESCRIBE_CONFIGS, _described("4711", BROKER_KIND)),
        Step("of a broker without a number", ApiKey.DESCRIBE_CONFIGS, _described("one", BROKER_KIND)),
        Step("of an unknown logger", ApiKey.DESCRIBE_CONFIGS, _described("4711", LOGGER_KIND)),
        Step("of a group", ApiKey.DESCRIBE_CONFIGS, _described("g", 3)),
        Step("of an unknown kind", ApiKey.DESCRIBE_CONFIGS, _described("g", 77)),
        Step(
            "of a topic twice",
            ApiKey.DESCRIBE_CONFIGS,
            constant(resources=resources("described", configuration_keys=_FEW)["resources"] * 2),
        ),
    ],
)


def _alter(
    name: str, *changes: tuple[str, int, str | None], topic: str = TOPIC, kind: int = TOPIC_KIND
) -> Step:
    rows = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    return Step(name, ApiKey.INCREMENTAL_ALTER_CONFIGS, constant(**resources(topic, kind, configs=rows)))


def _replace(name: str, *configs: tuple[str, str | None], topic: str = TOPIC, kind: int = TOPIC_KIND) -> Step:
    rows = [{"name": key, "value": value} for key, value in configs]
    return Step(
        name, ApiKey.ALTER_CONFIGS, constant(**resources(topic, kind, configs=rows), validate_only=False)
    )


def _look(name: str, keys: list[str], kind: int = TOPIC_KIND, resource: str = TOPIC) -> Step:
    return Step(name, ApiKey.DESCRIBE_CONFIGS, _described(resource, kind, keys), (4,))


_KEYS: Final = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes"]
ALTERATION = Script(
    "alteration of configs",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(TOPIC), new_topic("other")]), (7,)),
        _alter("set", ("retention.ms", SET, "70000"), ("cleanup.policy", SET, "delete")),
        _alter("append", ("cleanup.policy", APPEND, "compact")),
        _alter("append again", ("cleanup.policy", APPEND, "compact")),
        _look("seen after appending", _KEYS),
        _alter("subtract", ("cleanup.policy", SUBTRACT, "delete")),
        _alter("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete")),
        _look("seen after subtracting", _KEYS),
        _alter("append to no list", ("retention.ms", APPEND, "1")),
        _alter("take away", ("retention.ms", DELETE, None)),
        _alter("take away what is not set", ("retention.ms", DELETE, None)),
        _alter("set to nothing", ("retention.ms", SET, None)),
        _alter("set an unknown key", ("no.such.key", SET, "1")),
        _alter("take an unknown key away", ("no.such.key", DELETE, None)),
        _alter("set a wrong value", ("retention.ms", SET, "long")),
        _alter(
            "set one right and one wrong", ("segment.bytes", SET, "9999999"), ("retention.ms", SET, "long")
        ),
        *(
            _alter(f"set {key} to {value}", (key, SET, value))
            for key, value in (
                ("remote.storage.enable", "true"),
                ("remote.log.copy.disable", "true"),
                ("remote.log.delete.on.disable", "true"),
                ("message.format.version", "9.9"),
                ("message.format.version", "2.8"),
                ("preallocate", "true"),
            )
        ),
        _alter("take the format away", ("message.format.version", DELETE, None)),
        _alter("take the allocation away", ("preallocate", DELETE, None)),
        _alter("set one twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        _alter("an unknown operation", ("retention.ms", 9, "1")),
        _alter("nothing"),
        _alter("of an unknown topic", ("retention.ms", SET, "1"), topic="nowhere"),
        _alter("append to no list of an unknown topic", ("retention.ms", APPEND, "1"), topic="nowhere"),
        _alter("append to an unknown key of an unknown topic", ("no.such.key", APPEND, "1"), topic="nowhere"),
        _alter("append to an unknown key", ("no.such.key", APPEND, "1")),
        _alter("of a bad name", ("retention.ms", SET, "1"), topic="a/b"),
        _alter("of an unknown kind", ("retention.ms", SET, "1"), kind=77),
        _alter("of an unknown broker", ("background.threads", SET, "9"), topic="4711", kind=BROKER_KIND),
        _alter(
            "of a broker without a number", ("background.threads", SET, "9"), topic="one", kind=BROKER_KIND
        ),
        _alter("of all brokers", ("background.threads", SET, "9"), topic="", kind=BROKER_KIND),
        _look("seen of all brokers", ["background.threads"], BROKER_KIND, ""),
        _alter("of all brokers, too much", ("background.threads", SET, "900"), topic="", kind=BROKER_KIND),
        _alter("of all brokers, read-only", ("log.dirs", SET, "/x"), topic="", kind=BROKER_KIND),
        _alter("of all brokers, back", ("background.threads", DELETE, None), topic="", kind=BROKER_KIND),
        Step(
            "two resources, the first wrong",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            constant(
                resources=[
                    *resources("nowhere", configs=[])["resources"],
                    *resources(
                        "other", configs=[{"name": "segment.bytes", "config_operation": 0, "value": "88888"}]
                    )["resources"],
                ]
            ),
        ),
        Step(
            "a resource twice",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            constant(resources=resources("other", configs=[])["resources"] * 2),
        ),
        Step(
            "only to look",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            constant(
                **resources(TOPIC, configs=[{"name": "retention.ms", "config_operation": 0, "value": "5"}]),
                validate_only=True,
            ),
        ),
        _look("seen after all", _KEYS),
        _look("seen of the other", _KEYS, resource="other"),
        _replace("replace", ("retention.ms", "80000"), ("segment.bytes", "9999999")),
        _look("seen after replacing", _KEYS),
        _replace("replace by fewer", ("max.message.bytes", "99999")),
        _look("seen after replacing by fewer", _KEYS),
        _replace("replace by an unknown key", ("no.such.key", "1")),
        _replace("replace by a wrong value", ("retention.ms", "long")),
        _replace("replace by nothing", ("retention.ms", None)),
        _replace("replace of an unknown topic", ("retention.ms", "1"), topic="nowhere"),
        _replace("replace of an unknown kind", ("retention.ms", "1"), kind=77),
        _replace("replace all by none"),
        _look("seen at the end", _KEYS),
    ],
)
