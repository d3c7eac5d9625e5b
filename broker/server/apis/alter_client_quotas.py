"""AlterClientQuotas (KIP-546, KIP-612): writes the quotas of users, client ids and IP addresses.

Any broker writes the change to the store and announces it, as Kafka does in ZooKeeper mode. Every broker,
including this one, applies it through :mod:`broker.server.dynamic_config`.
"""

from __future__ import annotations

import structlog

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterClientQuotasRequest, EntryData
from broker.quotas.altered import AlterationError, altered, altered_path, emptied_paths
from broker.quotas.described import IP
from broker.server.apis.context import ApiContext
from broker.server.apis.store_failures import failed
from broker.server.quotas import addresses_of
from broker.zookeeper import quota_nodes
from broker.zookeeper.store import StoreError

_log = structlog.get_logger(__name__)


def handle(request: Request, message: AlterClientQuotasRequest, ctx: ApiContext) -> Fields | None:
    """Each entity has its own error; a failure does not affect the others."""
    entries = []
    for entry in message.entries:
        error, text = Errors.NONE, None
        try:
            _alter(entry, ctx, validate_only=message.validate_only)
        except AlterationError as refusal:
            error, text = Errors.INVALID_REQUEST, str(refusal)
        except StoreError as failure:
            refused = failed(request, ", ".join(each.entity_name or "" for each in entry.entity), failure)
            error, text = refused.error_code, refused.message
        entries.append(_fields(entry, error, text))
    return {"entries": entries}


def error_response(message: AlterClientQuotasRequest, error: KafkaError) -> Fields:
    """The same error for every entity."""
    return {"entries": [_fields(entry, error.error_code, error.message) for entry in message.entries]}


def _alter(entry: EntryData, ctx: ApiContext, *, validate_only: bool) -> None:
    entity = {each.entity_type: each.entity_name for each in entry.entity}
    path = altered_path(entity)
    _check_host(entity.get(IP))
    changes = [(op.key, op.value, op.remove) for op in entry.ops]
    if validate_only:
        altered(path, ctx.store.entity_config_at(path), changes)
        return
    quota_nodes.change(ctx.store, emptied_paths(path), lambda config: altered(path, config, changes))
    told = [f"delete {key}" if removed else f"set {key}={value}" for key, value, removed in changes]
    _log.info("client_quotas_altered", entity=path, changes=", ".join(told))


def _check_host(host: str | None) -> None:
    if host is not None:
        try:
            addresses_of(host)
        except OSError as error:
            raise AlterationError(f"{host} is no IP address and no host that can be resolved") from error


def _fields(entry: EntryData, error: Errors, text: str | None) -> Fields:
    return {
        "error_code": error,
        "error_message": text,
        "entity": [
            {"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity
        ],
    }
