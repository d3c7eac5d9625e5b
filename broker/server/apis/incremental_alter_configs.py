"""IncrementalAlterConfigs (KIP-339): topics, this broker and the cluster's defaults. `alter_configs` shares
all but the form of its changes.

Any broker writes the change to the store and announces it, as Kafka does in ZooKeeper mode. Every broker,
including this one, applies it through `dynamic_config`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import structlog

from broker.config.alter import AlterError, Change, Operation, alter_broker, alter_topic
from broker.config.broker_config import check_dynamic
from broker.config.listener_keys import LISTENER_PREFIX
from broker.config.problems import ConfigError
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import (
    AlterConfigsAlterConfigsResource,
    AlterConfigsRequest,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.security.acls import AclOperation
from broker.security.password_encoder import PasswordError
from broker.server.apis.context import ApiContext
from broker.server.apis.describe_configs import (
    BROKER,
    TOPIC,
    check_allowed,
    check_broker_name,
)
from broker.server.apis.store_failures import failed
from broker.server.config_secrets import decoded, encoded
from broker.zookeeper.store import StoreError

DEFAULT_ENTITY: Final = "<default>"
_log = structlog.get_logger(__name__)
# One change at a time from this broker: each reads the existing configs and writes all of them.
_writing = threading.Lock()  # lock order 12


AnyAlterRequest = IncrementalAlterConfigsRequest | AlterConfigsRequest
AnyResource = IncrementalAlterConfigsAlterConfigsResource | AlterConfigsAlterConfigsResource
# The changes that a resource of the request makes to these configs.
ChangesOf = Callable[[Any, Mapping[str, str]], Sequence[Change]]


def handle(request: Request, message: IncrementalAlterConfigsRequest, ctx: ApiContext) -> Fields | None:
    """Each resource has its own error; a failure does not affect the others."""
    return alter_resources(request, message, ctx, _changes)


def _changes(
    resource: IncrementalAlterConfigsAlterConfigsResource, _before: Mapping[str, str]
) -> Sequence[Change]:
    return [Change(config.name, config.config_operation, config.value) for config in resource.configs]


def alter_resources(
    request: Request, message: AnyAlterRequest, ctx: ApiContext, changes_of: ChangesOf
) -> Fields:
    """Alters each resource by its own changes."""
    asked = Counter((resource.resource_type, resource.resource_name) for resource in message.resources)
    responses = []
    for resource in message.resources:
        error, text = Errors.NONE, None
        try:
            if asked[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(Errors.INVALID_REQUEST, "each resource may be named only once in a request")
            check_allowed(
                request, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name, ctx
            )
            _alter(resource, ctx, changes_of, validate_only=message.validate_only)
        except KafkaError as refusal:
            error, text = refusal.error_code, refusal.message
        except StoreError as failure:
            refused = failed(request, resource.resource_name, failure)
            error, text = refused.error_code, refused.message
        responses.append(_response(resource, error, text))
    return {"responses": responses}


def error_response(message: AnyAlterRequest, error: KafkaError) -> Fields:
    """The same error for every resource."""
    responses = [_response(resource, error.error_code, error.message) for resource in message.resources]
    return {"responses": responses}


def _alter(resource: AnyResource, ctx: ApiContext, changes_of: ChangesOf, *, validate_only: bool) -> None:
    kind, name = _entity(resource, ctx)
    try:
        with _writing:
            before = ctx.store.entity_config(kind, name)
            changes = changes_of(resource, before)
            after = _altered(kind, name, before, changes, ctx)
            if not validate_only:
                _write(kind, name, after, changes, ctx)
    except AlterError as error:
        code = Errors.INVALID_REQUEST if error.invalid_request else Errors.INVALID_CONFIG
        raise KafkaError(code, str(error)) from error


def _entity(resource: AnyResource, ctx: ApiContext) -> tuple[str, str]:
    """The entity's kind and name under `/config`."""
    if resource.resource_type == TOPIC:
        if not resource.resource_name:
            raise KafkaError(Errors.INVALID_REQUEST, "a topic is needed: there are no configs of all topics")
        if not ctx.metadata_cache.contains(resource.resource_name):
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.resource_name}")
        return "topics", resource.resource_name
    if resource.resource_type == BROKER:
        own = check_broker_name(resource.resource_name, ctx.broker_id, default_allowed=True)
        return "brokers", resource.resource_name if own else DEFAULT_ENTITY
    raise KafkaError(
        Errors.INVALID_REQUEST,
        f"resource type {resource.resource_type} has no configs to alter here: topics and brokers do",
    )


def _altered(
    kind: str, name: str, before: Mapping[str, str], changes: Sequence[Change], ctx: ApiContext
) -> Mapping[str, str]:
    """The entity's configs after the changes. Raises AlterError."""
    config = ctx.dynamic_config.config
    if kind == "topics":
        return alter_topic(config, before, changes)
    after = alter_broker(config, before, changes, cluster_wide=name == DEFAULT_ENTITY)
    touched = {change.name for change in changes}
    _check_taken_up(ctx, name, after, touched)
    try:
        return encoded(config, after, touched)
    except PasswordError as error:
        raise AlterError(str(error)) from error


def _write(
    kind: str, name: str, after: Mapping[str, str], changes: Sequence[Change], ctx: ApiContext
) -> None:
    ctx.store.set_entity_config(kind, name, after)
    ctx.store.create_config_change(f"{kind}/{name}")
    told = [f"{Operation(change.operation).name.lower()} {change.name}" for change in changes]
    _log.info("configs_altered", entity=f"{kind}/{name}", changes=", ".join(told))


def _check_taken_up(ctx: ApiContext, name: str, after: Mapping[str, str], touched: Collection[str]) -> None:
    """Raises AlterError if this broker could not use a listener's new configs, such as a key store."""
    if name == DEFAULT_ENTITY or not any(key.startswith(LISTENER_PREFIX) for key in touched):
        return
    config = ctx.dynamic_config.config
    plain, _ = decoded(config, after, touched)
    good, _ = check_dynamic(plain)
    try:
        ctx.check_broker_config(config.with_own({key: plain[key] for key in good}))
    except ConfigError as error:
        raise AlterError("; ".join(f"{each.key}: {each.message}" for each in error.problems)) from error


def _response(resource: AnyResource, error: Errors, text: str | None) -> Fields:
    return {
        "error_code": error,
        "error_message": text,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
