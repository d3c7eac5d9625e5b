"""AlterConfigs: replaces all configs of a topic, of this broker, or of the cluster's defaults.

Kafka deprecates it, but older admin clients send it. `incremental_alter_configs` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.config.alter import Change, Operation
from broker.network.request_channel import Request
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterConfigsAlterConfigsResource, AlterConfigsRequest
from broker.server.apis.context import ApiContext
from broker.server.apis.incremental_alter_configs import alter_resources, error_response

__all__ = ["error_response", "handle"]


def handle(request: Request, message: AlterConfigsRequest, ctx: ApiContext) -> Fields:
    """Each resource has its own error; a failure does not affect the others."""
    return alter_resources(request, message, ctx, _replacement)


def _replacement(resource: AlterConfigsAlterConfigsResource, before: Mapping[str, str]) -> Sequence[Change]:
    """Sets what the request names, and deletes the rest."""
    given = [Change(config.name, Operation.SET, config.value) for config in resource.configs]
    names = {change.name for change in given}
    return [*given, *(Change(name, Operation.DELETE, None) for name in before if name not in names)]
