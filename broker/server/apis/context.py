"""The context of the API modules: one record of the broker's parts, created by BrokerServer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, final

import structlog

from broker.cluster.partition import Partition
from broker.config.broker_config import BrokerConfig
from broker.controller.controller import KafkaController
from broker.controller.topic_admin import TopicAdmin
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from broker.log.log_manager import LogManager
from broker.network.request_channel import Request, Verdict
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError, ProtocolError
from broker.protocol.fields import Fields
from broker.record.inspection import Depth
from broker.replication.gone_brokers import GoneBrokers
from broker.replication.leadership import Leadership
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_markers import TransactionMarkers
from broker.replication.transaction_verification import TransactionVerification
from broker.server.access import Access
from broker.server.auto_topics import AutoTopicCreation
from broker.server.broker_peers import BrokerPeers
from broker.server.delegation_tokens import DelegationTokens
from broker.server.dynamic_config import DynamicConfigManager
from broker.server.fetch_sessions import FetchSessionCache
from broker.server.metadata_cache import MetadataCache
from broker.server.passed_over import PassedOver
from broker.server.producer_ids import ProducerIdManager
from broker.server.quotas import QuotaManagers
from broker.utils.clock import Clock
from broker.utils.refusal_log import log_refusal
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore

_log = structlog.get_logger(__name__)


class Submit(Protocol):
    """Queues work for a client's request, like :meth:`RequestHandlerPool.submit`; False if there is no room
    for it.
    """

    def __call__(
        self, work: Callable[[], None], request: Request | None = None, *, dear: bool = False
    ) -> bool: ...


def no_room(work: Callable[[], None], request: Request | None = None, *, dear: bool = False) -> bool:
    """Rejects all work: when every peer is trusted, nobody is looked up."""
    return False


@dataclass(slots=True)
class ApiContext:
    """The broker's parts, read by every API handler.

    ``submit`` passes work that may block to the RequestHandlerPool (False: it is full). ``submit_of_broker``
    passes requests of brokers and the controller to handlers reserved for them. ``submit_long`` passes work
    that waits for the store many times to its own handler. ``submit_of_stranger`` passes the look-up of an
    unknown peer that sends brokers' requests to the look-up thread. ``depth``: how thoroughly clients'
    batches are validated. ``check_broker_config`` raises ConfigError for what this broker could not take up.
    ``markers`` appends transaction markers. ``verification`` has a transaction's partitions verified before
    their first append. ``access`` says who may do what; None: everybody may do everything. ``tokens`` are the
    delegation tokens; None without ``delegation.token.secret.key``. ``passed_over`` has what old readers need not
    search again.
    """

    config: BrokerConfig
    broker_id: int
    cluster_id: str
    clock: Clock
    timer: Timer
    scheduler: KafkaScheduler
    store: ClusterStore
    log_manager: LogManager
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    gone_brokers: GoneBrokers
    leadership: Leadership
    metadata_cache: MetadataCache
    controller: KafkaController
    topic_admin: TopicAdmin
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    dynamic_config: DynamicConfigManager
    auto_topics: AutoTopicCreation
    producer_ids: ProducerIdManager
    broker_epoch: Callable[[], int]
    submit: Submit
    submit_of_broker: Submit
    submit_long: Submit
    depth: Depth = Depth.FIRST
    peers: BrokerPeers = field(default_factory=BrokerPeers)
    submit_of_stranger: Submit = no_room
    check_broker_config: Callable[[BrokerConfig], None] = lambda _config: None
    access: Access | None = None
    quotas: QuotaManagers = field(default_factory=QuotaManagers)
    tokens: DelegationTokens | None = None
    verification: TransactionVerification = field(default_factory=TransactionVerification)
    markers: TransactionMarkers = field(init=False)
    passed_over: PassedOver = field(default_factory=PassedOver)

    def queue_for(self, request: Request, work: Callable[[], None], *, dear: bool = False) -> Verdict:
        """Like :meth:`submit_for`, for a request that has no other work here. Returns its verdict."""
        request.keep()
        self.quotas.measure_elsewhere(request)
        if self.submit_for(request, work, dear=dear):
            return Verdict.QUEUED
        request.again = lambda: self.submit_for(request, work, dear=dear)
        return Verdict.FULL

    def submit_for(
        self, request: Request, work: Callable[[], None], *, dear: bool = False, asks_only: bool = False
    ) -> bool:
        """Like ``submit``, for work that answers ``request``. If the work fails, the connection is closed.
        With ``asks_only``, the work is skipped when the client has disconnected.
        """
        return self.submit(_Guarded(request, work, asks_only), request, dear=dear)

    def respond(self, request: Request, fields: Fields | bytes) -> None:
        """Encodes a response for the request's version and sends it. Any thread, once."""
        request.respond_fields(fields)


@final
class _Guarded:
    """A request's work on a handler's thread. If it fails, the connection is closed."""

    __slots__ = ("_asks_only", "_request", "_work")

    def __init__(self, request: Request, work: Callable[[], None], asks_only: bool) -> None:
        self._request = request
        self._work = work
        self._asks_only = asks_only

    def __call__(self) -> None:
        request = self._request
        if self._asks_only and request.connection.gone:
            return
        try:
            request.timed(self._work)
        except ProtocolError as error:
            log_refusal(
                "request_refused",
                request.connection.client_address,
                str(error),
                client_id=request.client_id,
                action="connection closed",
            )
            if not request.done:
                request.close_connection()
        except Exception:
            _log.exception(
                "request_failed",
                api=ApiKey(request.api_key).name,
                peer=request.connection.client_address,
                action="connection closed",
            )
            if not request.done:
                request.close_connection()


def why_absent(topic_partition: TopicPartition, ctx: ApiContext) -> Errors:
    """The error for a partition that is not here: one that sends the client elsewhere, if the cluster has
    the partition.
    """
    error = ctx.replica_manager.absence(topic_partition).error_code
    if error is Errors.NOT_LEADER_OR_FOLLOWER and not ctx.metadata_cache.contains_partition(topic_partition):
        return Errors.UNKNOWN_TOPIC_OR_PARTITION
    return error


def require_leader(
    topic_partition: TopicPartition, current_leader_epoch: int, ctx: ApiContext, *, or_follower: bool = False
) -> Partition:
    """The partition, if this broker leads it in that epoch (-1: any). Raises KafkaError otherwise."""
    if not ctx.metadata_cache.contains_partition(topic_partition):
        raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    if current_leader_epoch < NO_EPOCH:
        raise KafkaError(Errors.FENCED_LEADER_EPOCH, f"no leader has epoch {current_leader_epoch}")
    return ctx.replica_manager.require_leader(topic_partition, current_leader_epoch, or_follower=or_follower)


def refuse_too_many(request: Request, bound: int) -> None:
    """Answers INVALID_REQUEST to a request of more than ``bound`` elements if its response has an error field
    for the whole request; otherwise closes the connection.
    """
    api = APIS[request.api_key]
    body = codec.encode_error(request.api_key, request.api_version, Errors.INVALID_REQUEST)
    log_refusal(
        "request_refused",
        request.connection.client_address,
        f"{api.name} v{request.api_version} names more than {bound} things at once",
        client_id=request.client_id,
        bytes=len(request.body),
        action="connection closed" if body is None else "answered INVALID_REQUEST",
    )
    _respond_or_close(request, body)


def refuse(request: Request, error: Errors) -> None:
    """Answers ``error`` for the whole request; closes the connection if the response has no field for it."""
    _respond_or_close(request, codec.encode_error(request.api_key, request.api_version, error))


def _respond_or_close(request: Request, body: bytes | None) -> None:
    if body is None:
        request.close_connection()
    else:
        request.respond_body(body)
