"""A connection far below its quota uses a part of it without asking: what is recorded, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from broker.network import request_channel
from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.protocol.api_keys import ApiKey
from broker.quotas.allowance import Allowance
from broker.server.apis import fetch
from broker.server.apis.context import ApiContext
from broker.server.quotas import QuotaManagers, charge
from tests.support.clocks import MS, Nanoseconds
from tests.support.quota_requests import request, served
from tests.unit.server.test_longest_waits import Broker, fetched, requested


@pytest.fixture
def clock() -> Nanoseconds:
    return Nanoseconds()


@pytest.fixture
def quotas(clock: Nanoseconds) -> QuotaManagers:
    return QuotaManagers(clock_ns=clock)


# -- what is recorded together

BATCH = 16_384


def client() -> ConnectionInfo:
    return ConnectionInfo("1", "10.0.0.1", "PLAINTEXT", principal="User:alice")


def produced(quotas: QuotaManagers, clock: Nanoseconds, connection: ConnectionInfo) -> int:
    made = served(quotas, clock, 0, api=ApiKey.PRODUCE, version=9, connection=connection)
    made.receive_ns = clock()
    return quotas.of_produce(made, BATCH, -1)


def recorded_bytes(quotas: QuotaManagers) -> float:
    """Without what is used of parts that are out."""
    return sum(sensor.rate.total for sensor in quotas.produce._sensors.values())


def test_far_below_its_quota_a_connection_is_recorded_only_now_and_then(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/alice", {"producer_byte_rate": str(1 << 30)})
    connection = client()
    assert [produced(quotas, clock, connection) for _ in range(10)] == [0] * 10
    assert recorded_bytes(quotas) == BATCH
    clock.pass_ms(100)
    assert produced(quotas, clock, connection) == 0
    assert recorded_bytes(quotas) == 11 * BATCH


def test_near_its_quota_each_request_is_recorded(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    quotas.apply("users/alice", {"producer_byte_rate": str(32 * BATCH)})
    connection = client()
    for count in range(1, 20):
        produced(quotas, clock, connection)
        assert recorded_bytes(quotas) == count * BATCH


def test_a_closed_connection_has_recorded_everything(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    quotas.apply("users/alice", {"producer_byte_rate": str(1 << 30)})
    for _ in range(5):
        connection = client()
        for _ in range(2):
            produced(quotas, clock, connection)
        connection.gone = True
        connection.settle()
        produced(quotas, clock, connection)  # it was answered too late
    assert recorded_bytes(quotas) == 15 * BATCH


def test_many_connections_get_no_more_together_than_one(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    most = 2_000
    quotas.apply("users/alice", {"producer_byte_rate": str(most * BATCH // 10)})
    connections = [client() for _ in range(20)]
    freely = 0
    while not produced(quotas, clock, connections[freely % 20]):
        freely += 1
    # A throttle of less than half a millisecond is none.
    assert freely in {most - 1, most}


def test_a_request_under_another_name_uses_a_part_of_its_own(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("clients/<default>", {"producer_byte_rate": str(1 << 30)})
    connection = client()
    produced(quotas, clock, connection)
    other = request(ApiKey.PRODUCE, 9, connection)
    other.client_id, other.receive_ns = "other", clock()
    quotas.of_produce(other, BATCH, -1)
    assert quotas.produce.rates(quotas.now_ms) == {("", "app"): BATCH / 10, ("", "other"): BATCH / 10}
    assert connection.produced is not None
    assert connection.produced.client_id == "other"


def test_time_is_recorded_together_too(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    quotas.apply("users/alice", {"request_percentage": "1000"})
    connection = client()

    def used(ms: int) -> int:
        made = served(quotas, clock, ms, api=ApiKey.PRODUCE, version=9, connection=connection)
        return quotas.of_produce(made, BATCH, -1)

    assert [used(1) for _ in range(10)] == [0] * 10
    assert sum(sensor.rate.total for sensor in quotas.request._sensors.values()) == pytest.approx(0.1)
    clock.pass_ms(100)
    assert used(1) == 0
    assert quotas.request.rates(quotas.now_ms) == {("alice", ""): pytest.approx(0.11, rel=0.02)}


# -- requests that the connection's part of the quota pays for


def produces(connection: ConnectionInfo) -> Request:
    return request(ApiKey.PRODUCE, 9, connection)


def far_below(quotas: QuotaManagers, clock: Nanoseconds) -> tuple[ConnectionInfo, Allowance]:
    """A connection that has used little of its quota, and the part that pays for its next request."""
    quotas.apply("users/alice", {"request_percentage": "100"})
    connection = client()
    assert (
        quotas.of_produce(
            served(quotas, clock, 1, api=ApiKey.PRODUCE, version=9, connection=connection), 1, -1
        )
        == 0
    )
    part = quotas.begin(produces(connection), clock())
    assert part is not None
    return connection, part


def used_percent(quotas: QuotaManagers) -> float:
    quotas.request.rates(quotas.now_ms)  # collects
    return sum(sensor.rate.total for sensor in quotas.request._sensors.values())


def test_far_below_its_quota_a_connection_pays_for_what_was_served(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    connection, part = far_below(quotas, clock)
    connection.network_ns = 2 * MS
    charge(connection, part, 3 * MS)
    assert connection.network_ns == 0
    assert used_percent(quotas) == pytest.approx(0.1 + 0.2 + 0.3)


def test_one_long_request_far_below_the_quota_throttles_the_next(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    connection, part = far_below(quotas, clock)
    clock.pass_ms(10_500)
    charge(connection, part, 10_500 * MS)
    following = produces(connection)
    assert quotas.begin(following, clock()) is None, "it is measured itself"
    assert quotas.of_produce(following, 1, -1) > 0


def test_a_part_that_was_called_back_leaves_the_time_to_the_next_request(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    connection, part = far_below(quotas, clock)
    part.settle()
    charge(connection, part, 3 * MS)
    assert connection.network_ns == 3 * MS
    following = produces(connection)
    assert quotas.begin(following, clock()) is None
    assert following.used_ns(clock()) == 3 * MS


@pytest.mark.parametrize(
    "changed",
    [{"client_id": "other"}, {"api_key": ApiKey.UPDATE_METADATA}, {"api_key": ApiKey.CREATE_TOPICS}],
)
def test_requests_that_another_rule_is_for_are_measured_themselves(
    quotas: QuotaManagers, clock: Nanoseconds, changed: Mapping[str, Any]
) -> None:
    connection, _ = far_below(quotas, clock)
    made = produces(connection)
    for name, value in changed.items():
        setattr(made, name, value)
    assert quotas.begin(made, clock()) is None
    assert made.meter is not None


def test_a_produce_without_an_answer_is_not_paid_by_the_part(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    connection, part = far_below(quotas, clock)
    assert quotas.of_produce(produces(connection), 1, acks=0) == 0
    charge(connection, part, 3 * MS)
    assert used_percent(quotas) == pytest.approx(0.1)
    following = produces(connection)
    assert quotas.begin(following, clock()) is None
    quotas.of_produce(following, 1, acks=0)
    assert quotas.exempt_rate() > 0


def test_work_on_another_thread_is_paid_by_the_next_request(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    connection, part = far_below(quotas, clock)
    made = produces(connection)
    charge(connection, part, 0)
    made.timed(lambda: None)
    assert connection.network_ns > 0


class Handlers(Broker):
    """A context whose handlers take their work up later."""

    def __init__(self, quotas: QuotaManagers) -> None:
        super().__init__()
        self.quotas = quotas
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], _request: Request, *, dear: bool = False) -> bool:
        self.work.append(work)
        return True

    submit_for = ApiContext.submit_for
    queue_for = ApiContext.queue_for


def test_a_handlers_work_is_recorded_though_the_client_hangs_up(
    quotas: QuotaManagers, clock: Nanoseconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_channel, "time", SimpleNamespace(monotonic_ns=clock))
    connection, part = far_below(quotas, clock)
    made, ctx = produces(connection), Handlers(quotas)

    def work() -> None:
        clock.pass_ms(500)
        quotas.of_produce(made, 1, -1)

    assert ctx.queue_for(made, work) is Verdict.QUEUED  # type: ignore[misc]
    charge(connection, part, 0)
    clock.pass_ms(50)  # in the queue
    connection.gone = True
    connection.settle()
    ctx.work.pop()()
    assert used_percent(quotas) == pytest.approx(0.1 + 50)


def test_a_fetch_of_cold_data_is_measured_itself(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    connection, _ = far_below(quotas, clock)
    connection.cold_fetches = 1
    made, ctx = requested(ApiKey.FETCH, 11, fetched(0)), Handlers(quotas)
    made.connection = connection
    fetch.handle(made, ctx)  # type: ignore[arg-type]
    assert ctx.work
    assert made.meter is not None


def test_who_is_not_authenticated_is_not_measured(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    quotas.apply("users/<default>", {"request_percentage": "1"})
    connection = client()
    connection.is_unproved = True
    made = request(connection=connection)
    assert quotas.begin(made, clock()) is None
    assert made.meter is None
