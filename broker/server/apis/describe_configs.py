"""DescribeConfigs (KIP-133, KIP-226, KIP-569): topics, this broker, the cluster's defaults, loggers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.describe import Entry, Source, broker_entries, default_broker_entries, topic_entries
from broker.config.topic_name import topic_name_problem
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import DescribeConfigsRequest
from broker.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from broker.server.access import DENIED, allowed
from broker.server.apis.answer_budget import SETTING, AnswerBudget
from broker.server.apis.context import ApiContext
from broker.server.apis.store_failures import failed
from broker.server.apis.told_configs import Told, ToldConfigs
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.refusals import is_away
from broker.zookeeper.store import StoreError

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
_STRING_TYPE: Final = 2

_TOO_LARGE: Final = f"more than one answer may have ({SETTING}): ask for fewer resources or keys at once"

_told = ToldConfigs("results")

Configs = list[Fields]
Names = Collection[str] | None


class Resource(NamedTuple):
    """A resource to describe: a topic, a broker, or loggers."""

    kind: int
    name: str


class _TopicConfigs:
    """The topics' own configs, read for one request. Once ZooKeeper could not be asked, it is not asked again: each
    time would take as long.
    """

    def __init__(self, store: ClusterStore, request: Request) -> None:
        self._store = store
        self._request = request
        self._away: KafkaError | None = None

    def of(self, topic: str) -> Mapping[str, str]:
        """Raises KafkaError for configs that cannot be read."""
        if self._away is not None:
            raise self._away
        try:
            return self._store.topic_configs(topic)
        except StoreError as error:
            refusal = failed(self._request, topic, error)
            if is_away(error):
                self._away = refusal
            raise refusal from error


def handle(request: Request, message: DescribeConfigsRequest, ctx: ApiContext) -> Fields | None:
    """Each resource has its own error; a failure does not affect the others."""
    with_synonyms = codec.get(message, "include_synonyms", False)
    with_documentation = codec.get(message, "include_documentation", False)
    budget = AnswerBudget(request, ctx.config.int(SETTING))
    topic_configs = _TopicConfigs(ctx.store, request)
    elements = []
    for resource, names in _asked(message).items():
        try:
            check_allowed(request, AclOperation.DESCRIBE_CONFIGS, *resource, ctx)
            if budget.full:  # then further resources are not even read
                told = Told(_encoded(request, _result(resource, Errors.NONE, None)), 0)
            else:
                told = _described(
                    request,
                    resource,
                    names,
                    ctx,
                    topic_configs,
                    with_synonyms=with_synonyms,
                    with_documentation=with_documentation,
                )
        except KafkaError as refusal:
            told = Told(_encoded(request, _result(resource, refusal.error_code, refusal.message)), 0)
        element = told.element
        if told.number or budget.full:
            refused = budget.refusal(len(element), f"{told.number} configs of {resource.name!r}")
            if refused is not Errors.NONE:
                element = _encoded(request, _result(resource, refused, _TOO_LARGE))
        elements.append(element)
    return Listed({}, "results", elements)


def error_response(message: DescribeConfigsRequest, error: KafkaError) -> Fields:
    """The same error for every resource."""
    results = [_result(resource, error.error_code, error.message) for resource in _asked(message)]
    return {"results": results}


def _asked(message: DescribeConfigsRequest) -> Mapping[Resource, Names]:
    """The config names requested per resource. A resource named twice is answered once, for both."""
    asked: dict[Resource, set[str] | None] = {}
    for row in message.resources:
        resource = Resource(row.resource_type, row.resource_name)
        names = asked.setdefault(resource, set())
        # Null means all keys, and so does an empty list, as older clients send it.
        if not row.configuration_keys:
            asked[resource] = None
        elif names is not None:
            names.update(row.configuration_keys)
    return asked


def _encoded(request: Request, result: Fields) -> bytes:
    return codec.encode_element(request.api_key, request.api_version, "results", result)


def _described(
    request: Request,
    resource: Resource,
    names: Names,
    ctx: ApiContext,
    topic_configs: _TopicConfigs,
    *,
    with_synonyms: bool,
    with_documentation: bool,
) -> Told:
    config = ctx.dynamic_config.config
    if resource.kind == BROKER_LOGGER:
        check_broker_name(resource.name, ctx.broker_id, default_allowed=False)
        values = _result(resource, Errors.NONE, None)
        return _told.element(request, values, config, None, lambda: _loggers(names))
    source, entries = _entries(resource, names, ctx, config, topic_configs)
    values = _result(resource, Errors.NONE, None)

    def configs() -> Configs:
        return [_config(entry, with_synonyms, with_documentation) for entry in entries()]

    # A client's own selection of names is rarely repeated, so it is not cached.
    key = (source, with_synonyms, with_documentation) if names is None else None
    return _told.element(request, values, config, key, configs)


def _entries(
    resource: Resource, names: Names, ctx: ApiContext, config: BrokerConfig, topic_configs: _TopicConfigs
) -> tuple[Hashable, Callable[[], Iterable[Entry]]]:
    """What the entries depend on besides ``config``, and the entries."""
    if resource.kind == TOPIC:
        check_topic(resource.name, ctx)
        overrides = topic_configs.of(resource.name)
        return tuple(sorted(overrides.items())), lambda: topic_entries(config, overrides, names)
    if resource.kind == BROKER:
        if check_broker_name(resource.name, ctx.broker_id, default_allowed=True):
            return "broker", lambda: broker_entries(config, names)
        return "default", lambda: default_broker_entries(config, names)
    raise KafkaError(
        Errors.INVALID_REQUEST,
        f"resource type {resource.kind} has no configs here: topics and brokers do",
    )


def check_allowed(request: Request, operation: AclOperation, kind: int, name: str, ctx: ApiContext) -> None:
    """Raises if the request's principal may not do this with the configs of the topic or the broker. A broker's
    configs belong to the cluster.
    """
    if kind == TOPIC:
        owner = ResourceType.TOPIC
    elif kind in (BROKER, BROKER_LOGGER):
        owner, name = ResourceType.CLUSTER, CLUSTER_NAME
    else:
        return  # refused by its type
    if not allowed(ctx, request, operation, owner, name):
        raise KafkaError(DENIED[owner])


def check_topic(name: str, ctx: ApiContext) -> None:
    """Raises if there is no topic of this name."""
    problem = topic_name_problem(name)
    if problem:
        raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, problem)
    if not ctx.metadata_cache.contains(name):
        raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def check_broker_name(name: str, broker_id: int, *, default_allowed: bool) -> bool:
    """True for this broker's id, False for the empty name of the cluster's defaults; raises for any
    other name.
    """
    if name == str(broker_id):
        return True
    if not name and default_allowed:
        return False
    if not name.isdecimal():
        raise KafkaError(Errors.INVALID_REQUEST, f"a broker resource is named by its id, not by {name!r}")
    raise KafkaError(
        Errors.INVALID_REQUEST, f"this is broker {broker_id}: ask broker {name} for its own configs"
    )


def _config(entry: Entry, with_synonyms: bool, with_documentation: bool) -> Fields:
    synonyms = [synonym._asdict() for synonym in entry.synonyms] if with_synonyms else []
    return {
        "name": entry.key.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "is_default": entry.source is Source.DEFAULT,
        "config_source": entry.source,
        "is_sensitive": entry.key.sensitive,
        "synonyms": synonyms,
        "config_type": entry.key.type,
        "documentation": entry.key.doc if with_documentation else None,
    }


def _loggers(names: Names) -> Configs:
    """The single logger, whose level is set by the process's environment."""
    if names is not None and "root" not in names:
        return []
    return [
        {
            "name": "root",
            "value": os.environ.get("LANDLINE_LOG_LEVEL", "info").upper(),
            "read_only": True,
            "is_default": False,
            "config_source": Source.DYNAMIC_BROKER_LOGGER,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": _STRING_TYPE,
            "documentation": None,
        }
    ]


def _result(resource: Resource, error: Errors, text: str | None) -> Fields:
    return {
        "error_code": error,
        "error_message": text,
        "resource_type": resource.kind,
        "resource_name": resource.name,
        "configs": [],
    }
