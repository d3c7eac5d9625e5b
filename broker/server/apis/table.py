"""Maps each API to its handler, and dispatches requests by this table and :mod:`broker.server.admission`.

*Quick* requests complete on the Processor's thread, because a hand-off between threads costs more than the
request. Requests that may block (ZooKeeper, admin, the controller's requests) or take long go through the
RequestChannel to the handler threads. A request with too many elements is answered INVALID_REQUEST if its
response has a field for that; otherwise its connection is closed. :meth:`Apis.dispatch` returns only a
verdict and never raises: a request that cannot be served is answered or its connection closed, and one line
is logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final, final

import structlog

from broker.network.request_channel import Request, Verdict
from broker.protocol import codec
from broker.protocol.api_keys import APIS, Api, ApiKey
from broker.protocol.errors import Errors, KafkaError, ProtocolError
from broker.protocol.fields import Fields
from broker.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from broker.server.access import DENIED, allowed
from broker.server.admission import RULES, Place, Rule
from broker.server.apis.context import ApiContext, Submit, refuse, refuse_too_many
from broker.server.apis.strangers import introduce
from broker.server.quotas import charge
from broker.utils.refusal_log import log_refusal
from broker.zookeeper.refusals import refusal_of
from broker.zookeeper.store import StoreError

_log = structlog.get_logger(__name__)
RawHandler = Callable[[Request, ApiContext], Verdict]
# Returns the response's fields or its encoded body; None: the request is answered later.
Handler = Callable[[Request, Any, ApiContext], Fields | bytes | None]


@dataclass(frozen=True, slots=True)
class Need:
    """What a request's principal must be allowed, or the whole request is refused: an operation on the
    cluster, or on the group that the request is about. Topics, and groups of which there are several, are the
    handler's matter: each has its own error.
    """

    operation: AclOperation
    resource_type: ResourceType = ResourceType.CLUSTER

    def name_in(self, message: Any) -> str:
        """The name of the needed resource."""
        return CLUSTER_NAME if self.resource_type is ResourceType.CLUSTER else str(message.group_id)


@dataclass(frozen=True, slots=True)
class Route:
    """Who handles an API: a module in this package, and a function in it. ``raw`` handlers parse the bytes
    themselves. The module of a ``dear`` one provides ``is_dear``, which tells which of its small messages are
    expensive anyway; that of one that ``recalls`` provides ``recall``, which may know the encoded body of the
    response before a small request is decoded. If there is an authorizer, ``need`` is checked before the
    handler is called.
    """

    module: str
    raw: bool = False
    dear: bool = False
    function: str = "handle"
    need: Need | None = None
    recalls: bool = False


_OF_BROKERS: Final = Need(AclOperation.CLUSTER_ACTION)
_DESCRIBE: Final = Need(AclOperation.DESCRIBE)
_ALTER: Final = Need(AclOperation.ALTER)
_OF_MEMBERS: Final = Need(AclOperation.READ, ResourceType.GROUP)
_DELETES_OF_GROUP: Final = Need(AclOperation.DELETE, ResourceType.GROUP)

# An API is a row of APIS with its versions; by default, ``handle`` of the module with its name serves
# it. Exceptions:
_OTHERWISE: Final[Mapping[ApiKey, Route]] = {
    ApiKey.PRODUCE: Route("produce", raw=True),
    ApiKey.FETCH: Route("fetch", raw=True),
    ApiKey.LIST_OFFSETS: Route("list_offsets", dear=True),
    ApiKey.METADATA: Route("metadata", recalls=True),
    ApiKey.LEADER_AND_ISR: Route("inter_broker", function="leader_and_isr", need=_OF_BROKERS),
    ApiKey.STOP_REPLICA: Route("inter_broker", function="stop_replica", need=_OF_BROKERS),
    ApiKey.UPDATE_METADATA: Route("inter_broker", function="update_metadata", need=_OF_BROKERS),
    ApiKey.CONTROLLED_SHUTDOWN: Route("controlled_shutdown", need=_OF_BROKERS),
    ApiKey.ALTER_PARTITION: Route("alter_partition", need=_OF_BROKERS),
    ApiKey.ALLOCATE_PRODUCER_IDS: Route("allocate_producer_ids", need=_OF_BROKERS),
    ApiKey.OFFSET_COMMIT: Route("offset_commit", need=_OF_MEMBERS),
    ApiKey.OFFSET_FETCH: Route("offset_fetch", dear=True),
    ApiKey.JOIN_GROUP: Route("join_group", need=_OF_MEMBERS, dear=True),
    ApiKey.HEARTBEAT: Route("heartbeat", need=_OF_MEMBERS),
    ApiKey.OFFSET_DELETE: Route("offset_delete", need=_DELETES_OF_GROUP),
    ApiKey.LEAVE_GROUP: Route("leave_group", need=_OF_MEMBERS),
    ApiKey.SYNC_GROUP: Route("sync_group", need=_OF_MEMBERS),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Route("consumer_group_heartbeat"),  # asks only if it is served
    ApiKey.API_VERSIONS: Route("api_versions", raw=True),
    ApiKey.DESCRIBE_ACLS: Route("acls", function="describe", need=_DESCRIBE),
    ApiKey.CREATE_ACLS: Route("acls", function="create", need=_ALTER),
    ApiKey.DELETE_ACLS: Route("acls", function="delete", need=_ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Route("describe_client_quotas", need=Need(AclOperation.DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CLIENT_QUOTAS: Route("alter_client_quotas", need=Need(AclOperation.ALTER_CONFIGS)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Route("describe_user_scram_credentials", need=_DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Route("alter_user_scram_credentials", need=_ALTER),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Route("alter_replica_log_dirs", need=_ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: Route("describe_log_dirs", need=_DESCRIBE),
    ApiKey.ELECT_LEADERS: Route("elect_leaders", need=_ALTER),
    ApiKey.UPDATE_FEATURES: Route("update_features", need=_ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route("alter_partition_reassignments", need=_ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Route("list_partition_reassignments", need=_DESCRIBE),
    ApiKey.CREATE_DELEGATION_TOKEN: Route("delegation_tokens", function="create"),
    ApiKey.RENEW_DELEGATION_TOKEN: Route("delegation_tokens", function="renew"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Route("delegation_tokens", function="expire"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Route("delegation_tokens", function="describe"),
}
ROUTES: Final[Mapping[ApiKey, Route]] = {
    api.key: _OTHERWISE.get(api.key, Route(api.name)) for api in APIS.values()
}
_NEEDS: Final[Mapping[int, Need]] = {
    key: route.need for key, route in ROUTES.items() if route.need is not None
}


@dataclass(slots=True)
class ApiStats:
    """Counters of one API, read by the metrics."""

    requests: int = 0
    errors: int = 0
    local_ns: int = 0


@final
class _ServedApi:
    """What a request of one API needs: its handler, the versions that it serves, and the counters."""

    __slots__ = ("handler", "max_version", "min_version", "name", "stats")

    def __init__(self, api: Api, handler: RawHandler, stats: ApiStats) -> None:
        self.handler = handler
        self.name = api.name
        # ApiVersions answers every version (KIP-511).
        answers_all = api.key == ApiKey.API_VERSIONS
        self.min_version = -(1 << 15) if answers_all else api.min_version
        self.max_version = (1 << 15) - 1 if answers_all else api.max_version
        self.stats = stats


class Apis:
    """The dispatcher of requests to their APIs; Kafka's KafkaApis. A module is imported on the first request
    for its API, so that start-up stays fast.
    """

    def __init__(self, ctx: ApiContext) -> None:
        self._ctx = ctx
        self._quotas = ctx.quotas
        self._served: dict[int, _ServedApi] = {}
        self.stats = {key: ApiStats() for key in ROUTES}

    def dispatch(self, request: Request) -> Verdict:
        """Serves or queues a request. Never raises."""
        try:
            served = self._served.get(request.api_key)
            if served is None:
                served = self._load(request.api_key)
            if not served.min_version <= request.api_version <= served.max_version:
                raise ProtocolError(f"{served.name} version {request.api_version} is not supported")
            started = time.monotonic_ns()
            meter = self._quotas.meter
            part = None if meter is None else self._quotas.begin(request, started)
            verdict = served.handler(request, self._ctx)
            ended = time.monotonic_ns()
            if part is not None:
                charge(request.connection, part, ended - started)
            elif meter is not None and not request.done:
                request.pause(started, ended)
            stats = served.stats
            stats.local_ns += ended - started
            stats.requests += 1
            return verdict
        except ProtocolError as error:
            self._refuse(request, str(error))
        except Exception:
            self._fail(request)
        return Verdict.SERVED

    def _load(self, api_key: int) -> _ServedApi:
        key = ApiKey(api_key)
        route = ROUTES[key]
        module = import_module(f"broker.server.apis.{route.module}")
        function = getattr(module, route.function)
        handler: RawHandler = function if route.raw else self._admitted(route, RULES[key], module, function)
        served = self._served[api_key] = _ServedApi(APIS[key], handler, self.stats[key])
        return served

    def _admitted(self, route: Route, rule: Rule, module: ModuleType, function: Handler) -> RawHandler:
        is_dear: Callable[[Any, ApiContext], bool] | None = module.is_dear if route.dear else None
        recall: Callable[[Request, ApiContext], bytes | None] | None = (
            module.recall if route.recalls else None
        )
        here_bytes, most = rule.here_bytes, rule.here_elements
        submit, submit_long = self._ctx.submit, self._ctx.submit_long
        computes = not rule.blocks

        def serve(request: Request, ctx: ApiContext) -> Verdict:
            if rule.for_brokers:
                return self._dispatch_of_broker(request, rule, module, function)
            key, version, body = request.api_key, request.api_version, request.body
            size = len(body)
            if recall is not None and size <= here_bytes and (known := recall(request, ctx)) is not None:
                request.respond_body(known)
                return Verdict.SERVED
            # A large body is not even counted here. No element is smaller than a byte, so few bytes need
            # no count.
            surveyed = None
            if size > here_bytes or (
                size > most and (surveyed := codec.survey(key, version, body, most)).elements > most
            ):
                return self._queue(
                    request,
                    rule,
                    lambda: self._serve_later(request, rule, module, function),
                    submit if computes or size <= rule.blocks else submit_long,
                    dear=computes,
                )
            message = codec.decode(key, version, "request", body, surveyed)
            if is_dear is not None and is_dear(message, ctx):
                return self._queue(
                    request,
                    rule,
                    lambda: self._serve(request, message, module, function),
                    submit,
                    dear=True,
                )
            self._serve(request, message, module, function)
            return Verdict.SERVED

        return serve

    def _queue(
        self, request: Request, rule: Rule, work: Callable[[], None], submit: Submit, *, dear: bool = False
    ) -> Verdict:
        request.keep()

        def guarded() -> None:
            self._guarded(request, rule, work)

        if submit(guarded, request, dear=dear):
            return Verdict.QUEUED
        request.again = lambda: submit(guarded, request, dear=dear)
        return Verdict.FULL

    def _guarded(self, request: Request, rule: Rule, work: Callable[[], None]) -> None:
        if rule.asks_only and request.connection.gone:
            return  # nobody reads the response; requests that change something still run, as in Kafka
        try:
            request.timed(work)
        except ProtocolError as error:
            self._refuse(request, str(error))
        except Exception:
            self._fail(request)

    def _dispatch_of_broker(
        self, request: Request, rule: Rule, module: ModuleType, function: Handler
    ) -> Verdict:
        """A request from an unknown peer is neither queued for brokers' handlers nor copied before the peer
        is known as a broker.
        """

        def refused() -> None:
            self._quotas.not_exempt(request)
            refuse(request, Errors.CLUSTER_AUTHORIZATION_FAILED)

        if self._ctx.access is not None and not self._is_met(request, None):
            refused()
            return Verdict.SERVED
        submit = self._ctx.submit_of_broker
        is_dear = len(request.body) > rule.alone_bytes

        def serve() -> None:
            self._serve_later(request, rule, module, function)

        if self._ctx.peers.knows(request.connection):
            return self._queue(request, rule, serve, submit, dear=is_dear)

        def admitted() -> None:
            if not submit(lambda: self._guarded(request, rule, serve), request, dear=is_dear):
                request.close_connection()  # no room even for brokers: it is sent again

        return introduce(request, self._ctx, admitted, refused)

    def _serve_later(self, request: Request, rule: Rule, module: ModuleType, function: Handler) -> None:
        key, version, body = request.api_key, request.api_version, request.body
        surveyed = codec.survey(key, version, body, rule.most_elements)
        if rule.place(len(body), surveyed.elements) is Place.REFUSED:
            refuse_too_many(request, rule.most_elements)
            return
        message = codec.decode(key, version, "request", body, surveyed)
        self._serve(request, message, module, function)

    def _serve(self, request: Request, message: Any, module: ModuleType, function: Handler) -> None:
        try:
            if self._ctx.access is not None and not self._is_met(request, message):
                raise KafkaError(DENIED[_NEEDS[request.api_key].resource_type])
            fields = function(request, message, self._ctx)
        except Exception as error:
            error_response = getattr(module, "error_response", None)
            if error_response is None:
                raise
            fields = error_response(message, self._known(request, error))
        if fields is not None:
            request.respond_fields(fields)

    def _is_met(self, request: Request, message: Any) -> bool:
        need = _NEEDS.get(request.api_key)
        return need is None or allowed(
            self._ctx, request, need.operation, need.resource_type, need.name_in(message)
        )

    def _known(self, request: Request, error: Exception) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        self.stats[ApiKey(request.api_key)].errors += 1
        name = APIS[request.api_key].name
        if isinstance(error, StoreError):
            return refusal_of(
                error, api=name, client_id=request.client_id, peer=request.connection.client_address
            )
        _log.error("request_failed", api=name, exc_info=error)
        return KafkaError(Errors.UNKNOWN_SERVER_ERROR, "the broker failed; its log has the reason")

    def _refuse(self, request: Request, reason: str) -> None:
        log_refusal(
            "request_refused",
            request.connection.client_address,
            reason,
            client_id=request.client_id,
            action="connection closed",
        )
        if not request.done:
            request.close_connection()

    def _fail(self, request: Request) -> None:
        self.stats[ApiKey(request.api_key)].errors += 1
        _log.exception(
            "request_failed",
            api=APIS[request.api_key].name,
            version=request.api_version,
            client_id=request.client_id,
            peer=request.connection.client_address,
            action="connection closed",
        )
        if not request.done:
            request.close_connection()
