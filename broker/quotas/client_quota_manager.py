"""The client quotas of one type, and how much of them each client has used. Kafka's ClientQuotaManager, and
for changes of topics its ControllerMutationQuotaManager.

The caller says who used how much, and is told for how long to throttle. It tells the manager of each throttle,
for the metrics. :mod:`.entities` knows the keys.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.quotas.allowance import VALID_NS, Allowance
from broker.quotas.entities import QuotaEntity, encoded
from broker.quotas.precedence import QuotaTable, Scope
from broker.quotas.rate import (
    AVERAGE_WINDOWS,
    MOST_MS,
    UNLIMITED,
    SampledAverage,
    SampledRate,
    TokenBucket,
    Windows,
)

# Kafka's InactiveSensorExpirationTimeSeconds. A client id costs its sender nothing, so memory is bounded too.
_FORGOTTEN_MS: Final = 3_600_000
_MOST_BYTES: Final = 32 << 20
_SENSOR_BYTES: Final = 2_500
_MOST_KNOWN: Final = 10_000
_LONGEST_KNOWN: Final = 256  # a client id may have 32 KiB
# A connection's share of what is left of a quota: the last one of many must also get a useful one.
_PARTS: Final = 64
# No part is larger than this many of the smallest: enough for some milliseconds, and subtractions are exact.
_MOST_AT_ONCE: Final = 16
_MS: Final = 1_000_000
# A client that reconnects for each request adds a throttle each time, and each may last for days.
_MOST_THROTTLES: Final = 100_000
# Each client is a line of the metrics; more than this many are not exported.
MOST_EXPORTED: Final = 1_000
_MOST_LETTERS: Final = 256  # of a name in a metric: clients choose them


class _Sensor:
    """What one scope has used. Kafka's ClientSensors. ``quiet`` is a sum that cannot be above the quota,
    whatever the time is; it saves a division. ``paid_ms`` is when all that was used above the quota is paid off.
    ``allowed`` is the sum of ``parts``, which connections may use without asking. Those that have expired are
    looked for only when nothing else is left, and not before ``next_look_ns``.
    """

    __slots__ = (
        "allowed",
        "bound",
        "bucket",
        "next_look_ns",
        "paid_ms",
        "parts",
        "quiet",
        "rate",
        "scope",
        "throttle_times",
    )

    def __init__(self, scope: Scope, windows: Windows, averages: Windows) -> None:
        self.scope = scope
        self.allowed = 0.0
        self.parts: set[Allowance] = set()
        self.next_look_ns = 0
        self.rate = SampledRate(windows)
        self.bucket = TokenBucket(windows)
        self.throttle_times = SampledAverage(averages)
        self.set_bound(None)

    def set_bound(self, bound: float | None) -> None:
        self.paid_ms = 0.0
        self.bound = UNLIMITED if bound is None else bound
        self.quiet = self.bound * self.rate.windows.full_ms / 1_000

    def owe(self, whole_ms: float, throttle_ms: int, now_ms: int, longest_ms: int) -> int:
        """Adds what a request used above the quota to the debt, or all of it, ``whole_ms``, while there is one. A
        debt lasts for ``longest_ms`` at most. Returns the throttle time, Kafka's ``throttle_ms`` or longer.
        """
        if self.paid_ms > now_ms:
            self.paid_ms += whole_ms
        else:
            self.paid_ms = now_ms + min(throttle_ms, whole_ms)
        self.paid_ms = min(self.paid_ms, now_ms + longest_ms)
        return max(throttle_ms, int(self.paid_ms - now_ms + 0.5))

    def share(self) -> float:
        """A connection's part of what is left."""
        return (self.quiet - self.rate.total - self.allowed) / _PARTS

    def collect(self) -> None:
        """Records what was used of the parts that are out."""
        for part in self.parts:
            used = part.taken()
            self.allowed -= used
            self.rate.record(used, self.rate.last_ms)

    def call_back(self, parts: Iterable[Allowance]) -> None:
        """Ends parts, and records what was used of them."""
        self.collect()
        for part in parts:
            part.until_ns = 0
            self.allowed -= part.given
        self.parts -= set(parts)
        if not self.parts:
            self.allowed = 0.0

    @property
    def weight(self) -> int:
        return _SENSOR_BYTES + 2 * (len(self.scope.user) + len(self.scope.client_id))


class ClientQuotaManager:
    """The quotas of one type and their use; Kafka's ClientQuotaManager. Thread-safe.

    ``enabled`` is False until the first quota is set: until then nobody needs to call. A client is its
    principal (``User:name``) and its client id. ``averages`` are the windows of the metrics' averages.
    ``most_ms`` bounds the throttle time for one request.

    ``keeps_debts`` is for what is used before it is measured. Kafka forgets what was used when its sample
    expires, or at ``most_ms``, so many connections with one large request each get a multiple of their quota.
    Here each is throttled until the debt of all is paid. For one connection that is Kafka's throttle time.
    With ``most_ms`` no throttle is longer than all samples together: who shares a quota shares its debts.
    """

    def __init__(
        self,
        windows: Windows,
        averages: Windows = AVERAGE_WINDOWS,
        *,
        most_ms: int = MOST_MS,
        keeps_debts: bool = False,
    ) -> None:
        self.enabled = False
        self._windows = windows
        self._averages = averages
        self._most_ms = most_ms
        self._longest_ms = MOST_MS if most_ms == MOST_MS else windows.kept_ms
        self._keeps_debts = keeps_debts
        self._table = QuotaTable()
        self._sensors: dict[Scope, _Sensor] = {}
        self._weight = 0
        # Principal and client id as requests have them: a look-up instead of an encoding.
        self._known: dict[tuple[str, str | None], _Sensor] = {}
        self._throttled_until_ms: list[int] = []
        self._lock = threading.Lock()  # lock order 78

    def update(self, entity: QuotaEntity, bound: float | None) -> bool:
        """Sets an entity's quota; None removes it. Returns whether that changed anything."""
        with self._lock:
            changed = self._table.update(entity, bound)
            if changed:
                self._known.clear()
                for sensor in self._sensors.values():
                    sensor.set_bound(self._table.bound(sensor.scope))
            self.enabled = self._table.enabled
        return changed

    def bound(self, principal: str, client_id: str | None, now_ms: int) -> float:
        """The client's quota."""
        with self._lock:
            return self._sensor(principal, client_id, now_ms).bound

    def most_at_once(self, principal: str, client_id: str | None, now_ms: int) -> float:
        """What a client that used nothing may use at once without being throttled; Kafka's getMaxValueInQuotaWindow."""
        with self._lock:
            return self._sensor(principal, client_id, now_ms).quiet

    def record(self, principal: str, client_id: str | None, value: float, now_ms: int) -> int:
        """Records that a client used ``value``. Returns for how many milliseconds to throttle it; 0
        if not at all.
        """
        with self._lock:
            sensor = self._known.get((principal, client_id)) or self._sensor(principal, client_id, now_ms)
            rate = sensor.rate
            if rate.record(value, now_ms) + sensor.allowed <= sensor.quiet and sensor.paid_ms <= now_ms:
                return 0
            sensor.call_back(list(sensor.parts))
            throttle_ms = min(rate.throttle_ms(sensor.bound, now_ms), self._most_ms)
            if self._keeps_debts and sensor.bound > 0 and (throttle_ms or sensor.paid_ms > now_ms):
                whole_ms = min(1_000 * value / sensor.bound, self._most_ms)
                throttle_ms = sensor.owe(whole_ms, throttle_ms, now_ms, self._longest_ms)
            return min(throttle_ms, MOST_MS)

    def allow(self, principal: str, client_id: str | None, least: float, now_ns: int) -> Allowance | None:
        """A part of the quota for one connection; None if that would be less than ``least``, which is above 0,
        or if the client has debts.
        """
        if len(client_id or "") > _LONGEST_KNOWN:
            return None
        with self._lock:
            now_ms = now_ns // _MS
            sensor = self._sensor(principal, client_id, now_ms)
            if sensor.paid_ms > now_ms:
                return None
            given = sensor.share()
            if given < least and now_ns >= sensor.next_look_ns:
                sensor.next_look_ns = now_ns + VALID_NS
                sensor.call_back([part for part in sensor.parts if part.until_ns < now_ns])
                given = sensor.share()
            if given < least or sensor.paid_ms > now_ns // _MS:
                return None
            given = min(given, _MOST_AT_ONCE * least)
            part = Allowance(client_id, given, now_ns + VALID_NS, partial(self._settle, sensor))
            sensor.parts.add(part)
            sensor.allowed += given
        return part

    def _settle(self, sensor: _Sensor, part: Allowance) -> None:
        with self._lock:
            if part in sensor.parts:
                sensor.call_back([part])

    def take_back(self, principal: str, client_id: str | None, value: float, now_ms: int) -> None:
        """Undoes a :meth:`record`, when what was counted is not sent."""
        with self._lock:
            self._sensor(principal, client_id, now_ms).rate.record(-value, now_ms)

    def throttled(self, principal: str, client_id: str | None, throttle_ms: int, now_ms: int) -> None:
        """Notes for the metrics that a client is throttled by this quota."""
        with self._lock:
            self._sensor(principal, client_id, now_ms).throttle_times.record(throttle_ms, now_ms)
            self._drop_ended(now_ms)
            if len(self._throttled_until_ms) < _MOST_THROTTLES:
                heapq.heappush(self._throttled_until_ms, now_ms + throttle_ms)

    # -- metrics

    def queue_size(self, now_ms: int) -> int:
        """How many throttles have not ended, of at most 100,000; Kafka's queue-size."""
        with self._lock:
            self._drop_ended(now_ms)
            return len(self._throttled_until_ms)

    def rates(self, now_ms: int) -> dict[tuple[str, ...], float]:
        """The rate of each of the clients used last, by user and client id."""
        return self._of_each(lambda sensor: sensor.rate.measure(now_ms))

    def throttle_times(self, now_ms: int) -> dict[tuple[str, ...], float]:
        """The average throttle time of each, in milliseconds."""
        return self._of_each(lambda sensor: sensor.throttle_times.measure(now_ms))

    def _of_each(self, read: Callable[[_Sensor], float]) -> dict[tuple[str, ...], float]:
        """Takes the lock for each sensor alone: a network thread may wait for it."""
        with self._lock:
            sensors = list(self._sensors.values())
        values: dict[tuple[str, ...], float] = {}
        for sensor in heapq.nlargest(MOST_EXPORTED, sensors, key=_last_ms):
            with self._lock:
                sensor.collect()
                values[sensor.scope.user[:_MOST_LETTERS], sensor.scope.client_id[:_MOST_LETTERS]] = read(
                    sensor
                )
        return values

    # -- under the lock

    def _drop_ended(self, now_ms: int) -> None:
        while self._throttled_until_ms and self._throttled_until_ms[0] <= now_ms:
            heapq.heappop(self._throttled_until_ms)

    def _sensor(self, principal: str, client_id: str | None, now_ms: int) -> _Sensor:
        key = principal, client_id
        known = self._known.get(key)
        if known is not None:
            return known
        scope = self._table.scope(encoded(principal.partition(":")[2]), client_id or "")
        sensor = self._sensors.get(scope)
        if sensor is None:
            sensor = _Sensor(scope, self._windows, self._averages)
            sensor.set_bound(self._table.bound(scope))
            sensor.rate.record(0, now_ms)
            if self._weight + sensor.weight > _MOST_BYTES:
                self._forget(now_ms)
            self._sensors[scope] = sensor
            self._weight += sensor.weight
        if len(client_id or "") <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = sensor
        return sensor

    def forget_idle(self, now_ms: int) -> None:
        """Forgets clients that were not seen for an hour, as Kafka; called from time to time."""
        with self._lock:
            self._keep(
                [each for each in self._sensors.values() if now_ms - each.rate.last_ms < _FORGOTTEN_MS]
            )

    def _forget(self, now_ms: int) -> None:
        """Makes room: forgets those whose use has expired anyway, and if that is not half of all, the half
        that was used longest ago.
        """
        recent = [
            each for each in self._sensors.values() if now_ms - each.rate.last_ms < self._windows.kept_ms
        ]
        half = len(self._sensors) // 2
        self._keep(recent if len(recent) <= half else heapq.nlargest(half, recent, key=_last_ms))

    def _keep(self, sensors: list[_Sensor]) -> None:
        if len(sensors) < len(self._sensors):
            self._sensors = {sensor.scope: sensor for sensor in sensors}
            self._weight = sum(sensor.weight for sensor in sensors)
            self._known.clear()


def _last_ms(sensor: _Sensor) -> int:
    return sensor.rate.last_ms


class ControllerMutationQuotaManager(ClientQuotaManager):
    """The quota of partitions created and deleted per second, kept in token buckets (KIP-599)."""

    def take(
        self, principal: str, client_id: str | None, count: float, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Takes tokens for ``count`` partitions. Returns whether the change is allowed, and for how long to
        throttle the client.

        A strict quota refuses, and takes nothing, while the bucket is below zero, and does not throttle for a
        change that it allows. The other, for older clients, allows everything and throttles.
        """
        with self._lock:
            sensor = self._sensor(principal, client_id, now_ms)
            if strict and (throttle_ms := sensor.bucket.throttle_ms(sensor.bound, now_ms)):
                return False, throttle_ms
            sensor.rate.record(count, now_ms)
            sensor.bucket.take(count, sensor.bound, now_ms)
            return True, 0 if strict else sensor.bucket.throttle_ms(sensor.bound, now_ms)

    def tokens(self, now_ms: int) -> dict[tuple[str, ...], float]:
        """The tokens that each of the clients used last has left."""
        return self._of_each(lambda sensor: sensor.bucket.tokens(sensor.bound, now_ms))
