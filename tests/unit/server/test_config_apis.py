"""DescribeConfigs and IncrementalAlterConfigs over the wire's messages and a real store."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.describe import Source
from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.server.apis import alter_configs, describe_configs, incremental_alter_configs
from broker.server.dynamic_config import DynamicConfigManager
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from rig.wait import wait_until

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


class KnownTopics:
    """Of the MetadataCache, what these APIs ask."""

    def contains(self, topic):
        return topic == "t1"


@dataclass
class Context:
    """Of the ApiContext, what these APIs use."""

    store: ClusterStore
    dynamic_config: DynamicConfigManager
    metadata_cache: KnownTopics
    broker_id: int = 1
    check_broker_config: Callable[[BrokerConfig], None] = lambda _config: None
    access: None = None

    @property
    def config(self):
        return self.dynamic_config.config


@pytest.fixture
def ctx():
    embedded = EmbeddedStore()
    embedded.connect(1000, threading.Event())
    store = ClusterStore(embedded)
    store.create_top_level_paths()
    props = {"zookeeper.connect": "zk", "broker.id": "1", "log.dirs": "/d", "ssl.key.password": "hunter2"}
    manager = DynamicConfigManager(
        BrokerConfig.from_properties(props),
        1,
        store,
        on_topic_config=lambda _topic, _config: None,
        on_broker_config=lambda _: None,
        local_topics=list,
    )
    yield Context(store, manager, KnownTopics())
    manager.shutdown()
    embedded.close()


def call(api, module, version, ctx, fields):
    """The response's entity, through both encodings."""
    body = codec.encode(api, version, "request", fields)
    connection = ConnectionInfo("c", "10.0.0.9", "PLAINTEXT")
    request = Request(api, version, 1, "tester", memoryview(body), connection, 0, lambda *_: None)
    response = module.handle(request, codec.decode(api, version, "request", body), ctx)
    return codec.decode(api, version, "response", codec.encode(api, version, "response", response))


def describe(ctx, kind, name, keys=None, version=4, synonyms=True):
    fields = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": synonyms,
        "include_documentation": True,
    }
    (result,) = call(ApiKey.DESCRIBE_CONFIGS, describe_configs, version, ctx, fields).results
    return result


def alter(ctx, kind, name, *changes, version=1, validate_only=False):
    configs = [
        {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes
    ]
    fields = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": validate_only,
    }
    (response,) = call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs, version, ctx, fields
    ).responses
    return response


def replace_all(ctx, kind, name, *, version=2, validate_only=False, **configs):
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    fields = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": rows}],
        "validate_only": validate_only,
    }
    (response,) = call(ApiKey.ALTER_CONFIGS, alter_configs, version, ctx, fields).responses
    return response


def versions(api):
    return range(APIS[api].min_version, APIS[api].max_version + 1)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_every_version_tells_a_topics_configs(ctx, version):
    ctx.store.set_entity_config("topics", "t1", {"retention.ms": "5"})
    result = describe(ctx, TOPIC, "t1", version=version)
    assert result.error_code.value == Errors.NONE
    configs = {config.name: config for config in result.configs}
    assert len(configs) == 36
    assert configs["retention.ms"].value == "5"
    assert not configs["retention.ms"].read_only
    if version == 0:
        assert not configs["retention.ms"].is_default
        assert configs["segment.bytes"].is_default
    else:
        assert configs["retention.ms"].config_source == 1
        assert configs["retention.ms"].synonyms[0].name == "retention.ms"
    if version >= 3:
        assert configs["retention.ms"].config_type == 5
        assert configs["retention.ms"].documentation


def test_only_the_keys_asked_for_are_told(ctx):
    assert [config.name for config in describe(ctx, TOPIC, "t1", ["segment.bytes", "nonsense"]).configs] == [
        "segment.bytes"
    ]


def test_this_brokers_configs_are_told_without_passwords(ctx):
    configs = {config.name: config for config in describe(ctx, BROKER, "1").configs}
    assert len(configs) > 328
    assert configs["ssl.key.password"].is_sensitive
    assert configs["ssl.key.password"].value is None
    assert configs["broker.id"].read_only
    assert not configs["log.retention.ms"].read_only


def test_synonyms_are_told_only_when_asked_for(ctx):
    (config,) = describe(ctx, BROKER, "1", ["broker.id"], synonyms=False).configs
    assert config.synonyms == ()


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "absent", Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", Errors.INVALID_REQUEST),
        (BROKER, "one", Errors.INVALID_REQUEST),
        (LOGGER, "", Errors.INVALID_REQUEST),
        (99, "x", Errors.INVALID_REQUEST),
    ],
)
def test_what_is_not_there_has_its_own_error(ctx, kind, name, error):
    result = describe(ctx, kind, name)
    assert result.error_code.value == error
    assert result.error_message
    assert alter(ctx, kind, name).error_code.value == error
    assert replace_all(ctx, kind, name).error_code.value == error


def test_a_name_that_no_topic_may_have_has_its_own_error(ctx):
    assert describe(ctx, TOPIC, "../etc").error_code.value == Errors.INVALID_TOPIC_EXCEPTION
    for change in (alter, replace_all):
        assert change(ctx, TOPIC, "../etc").error_code.value == Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert change(ctx, TOPIC, "").error_code.value == Errors.INVALID_REQUEST


def test_the_root_logger_is_told(ctx):
    (config,) = describe(ctx, LOGGER, "1").configs
    assert (config.name, config.config_source, config.read_only) == ("root", 6, True)


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_a_topic_change_is_written_and_announced_as_kafka_does(ctx, version):
    assert (
        alter(ctx, TOPIC, "t1", ("retention.ms", SET, "5"), version=version).error_code.value == Errors.NONE
    )
    assert ctx.store.topic_configs("t1") == {"retention.ms": "5"}
    assert [path for _, path in ctx.store.config_changes()] == ["topics/t1"]
    assert describe(ctx, TOPIC, "t1", ["retention.ms"]).configs[0].value == "5"
    alter(ctx, TOPIC, "t1", ("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None))
    assert ctx.store.topic_configs("t1") == {"cleanup.policy": "delete,compact"}


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_all_configs_are_replaced_and_it_is_announced_as_kafka_does(ctx, version):
    ctx.store.set_entity_config("topics", "t1", {"retention.ms": "5", "segment.bytes": "1048576"})
    answer = replace_all(ctx, TOPIC, "t1", version=version, retention_ms="6", cleanup_policy="compact")
    assert answer.error_code.value == Errors.NONE
    assert ctx.store.topic_configs("t1") == {"retention.ms": "6", "cleanup.policy": "compact"}
    assert [path for _, path in ctx.store.config_changes()] == ["topics/t1"]
    assert replace_all(ctx, TOPIC, "t1", version=version).error_code.value == Errors.NONE
    assert ctx.store.topic_configs("t1") == {}


def test_a_replacement_that_is_only_validated_or_refused_writes_nothing(ctx):
    ctx.store.set_entity_config("topics", "t1", {"retention.ms": "5"})
    assert replace_all(ctx, TOPIC, "t1", validate_only=True).error_code.value == Errors.NONE
    assert replace_all(ctx, TOPIC, "t1", retention_sm="6").error_code.value == Errors.INVALID_CONFIG
    assert replace_all(ctx, TOPIC, "t1", retention_ms=None).error_code.value == Errors.INVALID_REQUEST
    assert replace_all(ctx, BROKER, "1", broker_id="2").error_code.value == Errors.INVALID_CONFIG
    assert ctx.store.topic_configs("t1") == {"retention.ms": "5"}
    assert ctx.store.config_changes() == []


def test_a_brokers_own_configs_are_replaced_and_the_clusters_stay(ctx):
    ctx.store.set_entity_config("brokers", "1", {"log.retention.ms": "5"})
    ctx.store.set_entity_config("brokers", "<default>", {"log.retention.ms": "6"})
    assert replace_all(ctx, BROKER, "1", message_max_bytes="2000000").error_code.value == Errors.NONE
    assert ctx.store.entity_config("brokers", "1") == {"message.max.bytes": "2000000"}
    assert ctx.store.entity_config("brokers", "<default>") == {"log.retention.ms": "6"}


def test_the_clusters_default_is_kept_under_its_own_name(ctx):
    assert alter(ctx, BROKER, "", ("log.retention.ms", SET, "5")).error_code.value == Errors.NONE
    assert ctx.store.entity_config("brokers", "<default>") == {"log.retention.ms": "5"}
    assert [path for _, path in ctx.store.config_changes()] == ["brokers/<default>"]
    assert alter(ctx, BROKER, "1", ("log.retention.ms", SET, "6")).error_code.value == Errors.NONE
    ctx.dynamic_config.startup()
    try:
        assert [(config.name, config.value) for config in describe(ctx, BROKER, "").configs] == [
            ("log.retention.ms", "5")
        ]
        (config,) = describe(ctx, BROKER, "1", ["log.retention.ms"]).configs
        assert [(synonym.value, synonym.source) for synonym in config.synonyms[:2]] == [("6", 2), ("5", 3)]
    finally:
        ctx.dynamic_config.shutdown()


def test_validating_writes_nothing(ctx):
    response = alter(ctx, TOPIC, "t1", ("retention.ms", SET, "5"), validate_only=True)
    assert response.error_code.value == Errors.NONE
    assert ctx.store.topic_configs("t1") == {}
    assert ctx.store.config_changes() == []


@pytest.mark.parametrize(
    ("kind", "name", "change", "error", "message"),
    [
        (TOPIC, "t1", ("retention.sm", SET, "5"), Errors.INVALID_CONFIG, "Did you mean retention.ms?"),
        (TOPIC, "t1", ("retention.ms", SET, "x"), Errors.INVALID_CONFIG, "whole number"),
        (TOPIC, "t1", ("retention.ms", SET, None), Errors.INVALID_REQUEST, "null"),
        (BROKER, "1", ("broker.id", SET, "2"), Errors.INVALID_CONFIG, "restart"),
        (BROKER, "1", ("ssl.key.password", SET, "hunter3"), Errors.INVALID_CONFIG, "restart"),
    ],
)
def test_a_refused_change_says_why_and_writes_nothing(ctx, kind, name, change, error, message):
    response = alter(ctx, kind, name, change)
    assert response.error_code.value == error
    assert message in response.error_message
    assert "hunter" not in response.error_message
    assert ctx.store.config_changes() == []


def test_one_bad_resource_costs_the_others_nothing_and_twins_are_refused(ctx):
    def resource(name, value):
        configs = [{"name": "retention.ms", "config_operation": SET, "value": value}]
        return {"resource_type": TOPIC, "resource_name": name, "configs": configs}

    fields = {"validate_only": False, "resources": [resource("t1", "5"), resource("absent", "5")]}
    codes = [
        response.error_code.value
        for response in call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs, 1, ctx, fields
        ).responses
    ]
    assert codes == [Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION]
    twins = {"validate_only": False, "resources": [resource("t1", "6"), resource("t1", "7")]}
    codes = [
        response.error_code.value
        for response in call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs, 1, ctx, twins
        ).responses
    ]
    assert codes == [Errors.INVALID_REQUEST, Errors.INVALID_REQUEST]
    assert ctx.store.topic_configs("t1") == {"retention.ms": "5"}


def asked(resources, synonyms, documentation):
    """The fields of a request for resources, each its kind, name and keys."""
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in resources
        ],
        "include_synonyms": synonyms,
        "include_documentation": documentation,
    }


def several(ctx, *resources, version=4):
    fields = asked(resources, synonyms=False, documentation=False)
    return call(ApiKey.DESCRIBE_CONFIGS, describe_configs, version, ctx, fields).results


def test_a_resource_that_is_named_twice_is_told_once_with_all_that_was_asked_of_it(ctx):
    (result,) = several(ctx, (BROKER, "1", ["broker.id"]), (BROKER, "1", ["log.dirs", "broker.id"]))
    assert {config.name for config in result.configs} == {"broker.id", "log.dirs"}
    result, topic = several(ctx, *[(BROKER, "1", None), (BROKER, "1", ["broker.id"])] * 50, (TOPIC, "t1", []))
    assert (len(result.configs) > 328, len(topic.configs)) == (True, 36)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_configs_that_do_not_fit_into_an_answer_are_refused_and_not_read(ctx, version):
    ctx.dynamic_config.config = BrokerConfig.from_properties(
        {"zookeeper.connect": "zk", "landline.answer.max.bytes": "5000"}
    )
    topic, broker, absent = several(
        ctx, (TOPIC, "t1", None), (BROKER, "1", None), (TOPIC, "absent", None), version=version
    )
    assert (topic.error_code, len(topic.configs)) == (Errors.NONE, 36)
    assert (broker.error_code, broker.configs) == (Errors.INVALID_REQUEST, ())
    assert "landline.answer.max.bytes" in broker.error_message
    assert absent.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def answer(ctx, version, *resources, synonyms=True):
    """The bytes of an answer."""
    fields = asked(resources, synonyms, documentation=True)
    api = ApiKey.DESCRIBE_CONFIGS
    body = codec.encode(api, version, "request", fields)
    connection = ConnectionInfo("c", "10.0.0.9", "PLAINTEXT")
    request = Request(api, version, 1, "tester", memoryview(body), connection, 0, lambda *_: None)
    told = describe_configs.handle(request, codec.decode(api, version, "request", body), ctx)
    return codec.encode(api, version, "response", told)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("synonyms", [True, False])
@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t1"), (BROKER, "1"), (BROKER, "")])
def test_what_is_told_from_memory_is_what_was_told_first(ctx, version, synonyms, kind, name):
    alter(ctx, BROKER, "", ("log.retention.ms", SET, "1000"))
    alter(ctx, TOPIC, "t1", ("segment.ms", SET, "7000"))
    ctx.dynamic_config.startup()
    every = [config.name for config in describe(ctx, kind, name).configs]
    assert every
    asked_by_name = answer(ctx, version, (kind, name, every), synonyms=synonyms)  # never from memory
    for _ in range(3):
        assert answer(ctx, version, (kind, name, None), synonyms=synonyms) == asked_by_name


def test_configs_of_a_broker_are_told_from_memory_until_one_changes(ctx, monkeypatch):
    made = []

    def counted(config, names):
        made.append(config)
        return plain(config, names)

    plain = describe_configs.broker_entries
    monkeypatch.setattr(describe_configs, "broker_entries", counted)
    first = answer(ctx, 4, (BROKER, "1", None))
    assert all(answer(ctx, 4, (BROKER, "1", None)) == first for _ in range(5))
    assert len(made) == 1
    ctx.dynamic_config.startup()
    alter(ctx, BROKER, "1", ("log.retention.ms", SET, "1234"))
    wait_until(lambda: value_of(describe(ctx, BROKER, "1"), "log.retention.ms") == "1234")
    assert answer(ctx, 4, (BROKER, "1", None)) != first
    assert answer(ctx, 4, (BROKER, "1", None), synonyms=False) != answer(ctx, 4, (BROKER, "1", None))


def test_a_config_that_is_set_twice_alike_is_told_with_where_it_is_from(ctx):
    ctx.dynamic_config.startup()

    def is_from(source):
        alike = [config for config in describe(ctx, BROKER, "1").configs if config.name == "log.retention.ms"]
        return [(config.value, config.config_source) for config in alike] == [("1000", source)]

    alter(ctx, BROKER, "", ("log.retention.ms", SET, "1000"))
    wait_until(lambda: is_from(Source.DYNAMIC_DEFAULT_BROKER))
    alter(ctx, BROKER, "1", ("log.retention.ms", SET, "1000"))
    wait_until(lambda: is_from(Source.DYNAMIC_BROKER))
    alter(ctx, BROKER, "1", ("log.retention.ms", DELETE, None))
    wait_until(lambda: is_from(Source.DYNAMIC_DEFAULT_BROKER))


def test_each_topic_is_told_its_own_overrides(ctx):
    plain = answer(ctx, 4, (TOPIC, "t1", None))
    alter(ctx, TOPIC, "t1", ("segment.ms", SET, "7000"))
    assert value_of(describe(ctx, TOPIC, "t1"), "segment.ms") == "7000"
    alter(ctx, TOPIC, "t1", ("segment.ms", DELETE, None))
    assert answer(ctx, 4, (TOPIC, "t1", None)) == plain


def value_of(result, name):
    """Of one config."""
    (value,) = [config.value for config in result.configs if config.name == name]
    return value
