"""The broker's client quotas: what a request uses of them, and how its connection is throttled for it.

:mod:`broker.quotas` has the rules. This module knows requests, and follows KafkaApis in what counts for which
quota: Produce for its own quota and the request quota, Fetch likewise, topic changes for the controller
mutation quota and the request quota, everything else for the request quota alone. A response is sent at once,
and then no more of the connection's requests are read for the throttle time (KIP-219).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.quotas.allowance import Allowance
from broker.quotas.client_quota_manager import ClientQuotaManager, ControllerMutationQuotaManager
from broker.quotas.entities import (
    CONNECTION_RATE,
    DEFAULT,
    IPS,
    QuotaType,
    address_of,
    decoded,
    entity_at,
    number_of,
)
from broker.quotas.rate import AVERAGE_WINDOWS, CLIENT_WINDOWS, SampledRate, Windows

_log = structlog.get_logger(__name__)
IDLE_LOOK_MS: Final = 60_000
_MS: Final = 1_000_000
# An allowance for fewer requests than this is not worth its cost.
_REQUESTS: Final = 8
# A nanosecond of a thread as a percentage of a second: rates per second are then percentages of a thread.
_PERCENT: Final = 100.0 / 1e9
_HEADER_BYTES: Final = 10
_UNCOUNTED: Final = 1  # the size of a request whose bytes do not matter
_TAGS_FROM: Final = APIS[ApiKey.PRODUCE].flexible_from  # a header with a byte more
# KafkaApis answers these "exempt from throttling".
EXEMPT: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
    )
)


class IpRates(Protocol):
    """The connection rates of IP addresses, as the acceptors keep them."""

    def update(self, address: str | None, rate: int | None) -> None:
        """Sets or removes the rate of an address, or of all that have none of their own (None)."""


class MutationQuota(Protocol):
    """What one request may still change of the topics; Kafka's ControllerMutationQuota."""

    def record(self, partitions: int) -> None:
        """Spends the change of so many partitions. Raises KafkaError, THROTTLING_QUOTA_EXCEEDED, if that is
        not allowed; then nothing is spent.
        """


class _Unbounded:
    def record(self, partitions: int) -> None:
        pass


UNBOUNDED: Final[MutationQuota] = _Unbounded()


class QuotaManagers:
    """All client quotas; Kafka's QuotaFactory.QuotaManagers. Thread-safe.

    ``meter`` measures requests, and is None until there is a request quota. ``active`` is False until there
    is a quota for Produce, for Fetch or for requests: until then nobody need ask.
    """

    def __init__(
        self,
        windows: Windows = CLIENT_WINDOWS,
        mutation_windows: Windows = CLIENT_WINDOWS,
        averages: Windows = AVERAGE_WINDOWS,
        *,
        ip_rates: IpRates | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.produce = ClientQuotaManager(windows, averages, keeps_debts=True)
        self.fetch = ClientQuotaManager(windows, averages)
        self.request = ClientQuotaManager(windows, averages, most_ms=windows.window_ms, keeps_debts=True)
        self.controller_mutation = ControllerMutationQuotaManager(mutation_windows, averages)
        self.meter: Callable[[Request], int] | None = None
        self.active = False
        self._by_type = {
            QuotaType.PRODUCE: self.produce,
            QuotaType.FETCH: self.fetch,
            QuotaType.REQUEST: self.request,
            QuotaType.CONTROLLER_MUTATION: self.controller_mutation,
        }
        self._ip_rates = ip_rates
        self._clock_ns = clock_ns
        # Only for a metric, so several threads may lose an addition.
        self._exempt = SampledRate(averages)

    # -- configs

    def apply(self, path: str, config: Mapping[str, str]) -> None:
        """Takes up the config at a path below ``/config``. Values that are no rates are logged and ignored."""
        kind, _, name = path.partition("/")
        if kind == IPS:
            self._apply_ip(decoded(name), self._rate(path, config, CONNECTION_RATE))
            return
        entity = entity_at(path)
        if entity is None:
            return
        for type_, manager in self._by_type.items():
            rate = self._rate(path, config, type_.value)
            if manager.update(entity, rate):
                _log.info("quota_changed", entity=path, quota=type_.value, value=rate)
        if self.request.enabled:
            self.meter = self._meter
        self.active = self.request.enabled or self.produce.enabled or self.fetch.enabled

    def _apply_ip(self, host: str | None, rate: float | None) -> None:
        if self._ip_rates is None:
            return
        whole = None if rate is None else int(rate)
        try:
            for address in [None] if host is None else addresses_of(host):
                self._ip_rates.update(address, whole)
        except OSError as error:
            _log.warning("quota_of_unknown_host", host=host, error=str(error), action="ignored")
            return
        _log.info("quota_changed", entity=f"{IPS}/{host or DEFAULT}", quota=CONNECTION_RATE, value=whole)

    def _rate(self, path: str, config: Mapping[str, str], key: str) -> float | None:
        text = config.get(key)
        if text is None:
            return None
        try:
            return number_of(key, text)
        except ValueError as error:
            _log.warning("quota_ignored", entity=path, quota=key, value=text, error=str(error))
            return None

    # -- requests

    def begin(self, request: Request, now_ns: int) -> Allowance | None:
        """Called before a request is served. Either measures the request, or returns the part of the quota that
        pays for it, with :func:`charge`: while a connection is far below its quota, Produce and Fetch are not
        measured one by one, which would take twice the time.
        """
        connection = request.connection
        part = connection.timed
        if (
            part is not None
            and part.left > 0
            and now_ns < part.until_ns
            and request.api_key <= ApiKey.FETCH
            and request.client_id == part.client_id
        ):
            return part
        # Otherwise who is not authenticated would hold up all others who are not yet.
        if self.meter is not None and not connection.is_unproved:
            request.measure(self.meter, now_ns)
        return None

    def measure_elsewhere(self, request: Request) -> None:
        """Measures a request that a handler's thread goes on with, if it is not measured yet. That may take long, and
        the connection may have no next request to pay for it.
        """
        if request.meter is None and self.meter is not None and not request.connection.is_unproved:
            request.measure(self.meter, 0)

    def exempt(self, request: Request) -> None:
        """Counts the time of a request that is never throttled."""
        if request.meter is not None:
            request.meter = None
            self._count_exempt(request)
        elif request.connection.timed is not None:
            request.connection.timed.settle()  # such requests must not use it

    def _count_exempt(self, request: Request) -> None:
        now_ns = self._clock_ns()
        self._exempt.record(request.used_ns(now_ns) * _PERCENT, now_ns // _MS)

    def size_of_produce(self, request: Request, acks: int) -> int:
        """The size of a Produce request with its header, without its length, as Kafka counts it. While it has
        its body. 0 if no quota is concerned, and :meth:`of_produce` need not be called.
        """
        if not self.produce.enabled:
            return 0 if acks and request.meter is None else _UNCOUNTED
        client_id = request.client_id or ""
        name = len(client_id) if client_id.isascii() else len(client_id.encode())
        return _HEADER_BYTES + name + (request.api_version >= _TAGS_FROM) + len(request.body)

    def of_produce(self, request: Request, size: int, acks: int) -> int:
        """Records a Produce request of ``size`` bytes; returns the throttle time for its response. With
        ``acks`` 0 it has none, and only its bytes count.
        """
        bytes_ms = request_ms = 0
        if self.produce.enabled:
            allowance = request.connection.produced
            if (
                allowance is not None
                and allowance.left >= size
                and request.receive_ns < allowance.until_ns
                and request.client_id == allowance.client_id
            ):
                allowance.left -= size
            else:
                bytes_ms = self._produced(request, size)
        if not acks:
            self.exempt(request)
        elif request.meter is not None:
            request.meter = None
            request_ms = self._record_request(request, self._clock_ns())
        if bytes_ms or request_ms:
            return self._throttle_more(request, self.produce, bytes_ms, request_ms)
        return 0

    def _produced(self, request: Request, size: int) -> int:
        connection = request.connection
        bytes_ms, connection.produced = self._record(
            self.produce, request, size, self._clock_ns(), connection.produced
        )
        return bytes_ms

    def _record(
        self,
        manager: ClientQuotaManager,
        request: Request,
        value: float,
        now_ns: int,
        before: Allowance | None,
    ) -> tuple[int, Allowance | None]:
        """Records a value, and what the connection used of its allowance ``before``. Returns the throttle time
        and the connection's next allowance.
        """
        if before is not None:
            before.settle()
        principal, client_id = request.connection.principal, request.client_id
        throttle_ms = manager.record(principal, client_id, value, now_ns // _MS)
        if throttle_ms or value <= 0 or request.connection.gone:
            return throttle_ms, None
        return 0, manager.allow(principal, client_id, _REQUESTS * value, now_ns)

    def of_fetch(self, request: Request, size: int) -> int:
        """Records a consumer's Fetch with a response of ``size`` bytes; returns the throttle time. If it is
        not 0, the response must be empty, and its bytes do not count.
        """
        now_ns = self._clock_ns()
        bytes_ms, request_ms = 0, self._request_ms(request, now_ns)
        if self.fetch.enabled:
            principal, client_id = request.connection.principal, request.client_id
            bytes_ms = self.fetch.record(principal, client_id, size, now_ns // _MS)
            if bytes_ms or request_ms:
                self.fetch.take_back(principal, client_id, size, now_ns // _MS)
        return self._throttle_more(request, self.fetch, bytes_ms, request_ms)

    def most_fetched(self, request: Request) -> int | None:
        """The most bytes that one consumer's Fetch may get: more would always be throttled. None: no limit."""
        if not self.fetch.enabled:
            return None
        now_ms = self._clock_ns() // _MS
        most = self.fetch.most_at_once(request.connection.principal, request.client_id, now_ms)
        return min(int(most), (1 << 31) - 1)

    def of_mutations(self, request: Request, *, strict_from: int) -> MutationQuota:
        """What the request may change of topics. Before version ``strict_from`` everything is allowed, and
        the client is throttled; from then on what is too much is refused (KIP-599). The request's response
        gets the throttle time by itself.
        """
        if not self.controller_mutation.enabled:
            return UNBOUNDED
        quota = _Mutations(self, request, strict=request.api_version >= strict_from)
        if request.meter is None:
            request.measure(quota.meter, 0)
        else:
            request.meter = quota.meter
        return quota

    def not_exempt(self, request: Request) -> None:
        """Measures a request that only brokers send as any other: its sender is none."""
        if request.meter is not None:
            request.meter = self._meter_of_client

    def _meter(self, request: Request) -> int:
        if request.api_key in EXEMPT:
            self._count_exempt(request)
            return 0
        return self._meter_of_client(request)

    def _meter_of_client(self, request: Request) -> int:
        now_ns = self._clock_ns()
        throttle_ms = self._record_request(request, now_ns)
        if throttle_ms:
            self.throttle(request, self.request, throttle_ms)
        return throttle_ms

    def _request_ms(self, request: Request, now_ns: int) -> int:
        if request.meter is None:
            return 0
        request.meter = None
        return self._record_request(request, now_ns)

    def _record_request(self, request: Request, now_ns: int) -> int:
        connection = request.connection
        used = request.used_ns(now_ns) * _PERCENT
        allowance = connection.timed
        if (
            allowance is not None
            and allowance.left >= used
            and now_ns < allowance.until_ns
            and request.client_id == allowance.client_id
        ):
            allowance.left -= used
            return 0
        request_ms, connection.timed = self._record(self.request, request, used, now_ns, allowance)
        return request_ms

    def _throttle_more(
        self, request: Request, manager: ClientQuotaManager, own_ms: int, request_ms: int
    ) -> int:
        """Throttles by the quota that takes longer."""
        if own_ms > request_ms:
            self.throttle(request, manager, own_ms)
        elif request_ms:
            self.throttle(request, self.request, request_ms)
        return max(own_ms, request_ms)

    def throttle(self, request: Request, manager: ClientQuotaManager, throttle_ms: int) -> None:
        """Mutes the request's connection from now on. Before its response is sent."""
        now_ns = self._clock_ns()
        request.connection.throttle(now_ns + throttle_ms * _MS)
        manager.throttled(request.connection.principal, request.client_id, throttle_ms, now_ns // _MS)

    def mutation_ms(self, request: Request, until_ms: int) -> int:
        """The throttle time for the response of a request that changed topics."""
        now_ns = self._clock_ns()
        own_ms = max(0, until_ms - now_ns // _MS)
        request_ms = self._record_request(request, now_ns) if self.request.enabled else 0
        return self._throttle_more(request, self.controller_mutation, own_ms, request_ms)

    def take_mutations(self, request: Request, count: int, *, strict: bool) -> tuple[bool, int, int]:
        """Whether the change of ``count`` partitions is allowed, and the throttle time and now in milliseconds."""
        now_ms = self._clock_ns() // _MS
        manager, principal = self.controller_mutation, request.connection.principal
        return *manager.take(principal, request.client_id, count, now_ms, strict=strict), now_ms

    # -- from time to time

    def forget_idle(self) -> None:
        """Forgets clients that were not seen for an hour."""
        now_ms = self._clock_ns() // _MS
        for manager in self._by_type.values():
            manager.forget_idle(now_ms)

    @property
    def now_ms(self) -> int:
        return self._clock_ns() // _MS

    def exempt_rate(self) -> float:
        """The percentage of a thread that exempt requests take."""
        return self._exempt.measure(self.now_ms)


class _Mutations:
    """The controller mutation quota of one request. ``meter`` is the request's."""

    def __init__(self, managers: QuotaManagers, request: Request, *, strict: bool) -> None:
        self._managers = managers
        self._request = request
        self._strict = strict
        self._until_ms = 0

    def record(self, partitions: int) -> None:
        allowed, throttle_ms, now_ms = self._managers.take_mutations(
            self._request, partitions, strict=self._strict
        )
        if throttle_ms:
            self._until_ms = now_ms + throttle_ms
        if not allowed:
            raise KafkaError(
                Errors.THROTTLING_QUOTA_EXCEEDED,
                f"the quota {QuotaType.CONTROLLER_MUTATION.value} of {self._request.connection.principal} is "
                f"used up: {APIS[self._request.api_key].name} is possible again in {throttle_ms} ms",
            )

    def meter(self, request: Request) -> int:
        return self._managers.mutation_ms(request, self._until_ms)


def charge(connection: ConnectionInfo, part: Allowance, spent_ns: int) -> None:
    """Takes the time that a request took from its connection's part of the quota, with what the network thread
    took for the connection. If the part was called back meanwhile, the connection's next request pays.
    """
    if part.until_ns:
        part.left -= (spent_ns + connection.network_ns) * _PERCENT
        connection.network_ns = 0
    else:
        connection.network_ns += spent_ns


def addresses_of(host: str) -> list[str]:
    """The addresses that a host has, as connections have them. A name is looked up once. Raises OSError."""
    try:
        return [address_of(host)]
    except ValueError:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(f"{host[:100]!r} cannot be a host's name: {error}") from error
        return sorted({address_of(str(info[4][0]).partition("%")[0]) for info in infos})
