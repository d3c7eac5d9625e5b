"""What requests use of quotas, and the APIs and configs that set them, over the embedded store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.config.broker_config import BrokerConfig
from broker.network.ip_rates import IpConnectionRates
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.quotas.rate import Windows
from broker.server.apis import alter_client_quotas, describe_client_quotas
from broker.server.dynamic_config import DynamicConfigManager
from broker.server.quotas import UNBOUNDED, QuotaManagers
from broker.zookeeper import quota_nodes
from broker.zookeeper.cluster_store import ClusterStore
from rig.wait import wait_until
from tests.support.clocks import MS, Nanoseconds
from tests.support.quota_requests import request, served


@pytest.fixture
def clock() -> Nanoseconds:
    return Nanoseconds()


@pytest.fixture
def quotas(clock: Nanoseconds) -> QuotaManagers:
    return QuotaManagers(ip_rates=IpConnectionRates(), clock_ns=clock)


def throttle_ms(answered: Request) -> int:
    """The throttle time in a HeartBeat's response."""
    assert answered.payload is not None
    frame = b"".join(bytes(piece) for piece in answered.payload if isinstance(piece, bytes))
    response = codec.decode(ApiKey.HEARTBEAT, 4, "response", frame[9:])
    return codec.to_ms(response.throttle_time)


def test_without_quotas_nothing_is_measured(quotas: QuotaManagers) -> None:
    assert quotas.meter is None
    assert not quotas.active
    assert quotas.of_mutations(request(), strict_from=0) is UNBOUNDED
    quotas.apply("users/alice", {"SCRAM-SHA-256": "salt"})
    assert quotas.meter is None


def test_a_request_that_took_too_long_is_answered_with_its_throttle_time(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/alice", {"request_percentage": "10"})
    first = served(quotas, clock, 1_000)
    first.respond_fields({"error_code": Errors.NONE})
    assert throttle_ms(first) == 0, "a whole second in ten"
    second = served(quotas, clock, 50)
    second.respond_fields({"error_code": Errors.NONE})
    assert throttle_ms(second) == 450, "10.5 seconds' worth in 10.05"
    assert second.connection.throttled_until_ns == clock() + 450 * MS
    assert quotas.request.queue_size(quotas.now_ms) == 1


def test_a_request_quota_holds_nobody_back_for_longer_than_a_sample(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/<default>", {"request_percentage": "1.5"})
    made = served(quotas, clock, 9_000)
    made.respond_fields({"error_code": Errors.NONE})
    assert throttle_ms(made) == 1_000


def test_the_time_that_a_request_waits_does_not_count(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    quotas.apply("clients/app", {"request_percentage": "10"})
    made = served(quotas, clock, 100)
    made.pause(clock() - 100 * MS, clock())
    clock.pass_ms(60_000)
    assert made.thread_ns(clock()) == 100 * MS
    made.respond_fields({"error_code": Errors.NONE})
    assert throttle_ms(made) == 0
    assert quotas.request.rates(quotas.now_ms) == {("", "app"): 1}


def test_requests_of_brokers_are_counted_apart_and_never_throttled(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/<default>", {"request_percentage": "0.001"})
    made = served(quotas, clock, 300, api=ApiKey.UPDATE_METADATA, version=8)
    made.respond_fields({"error_code": Errors.NONE})
    assert made.connection.throttled_until_ns == 0
    assert quotas.exempt_rate() == pytest.approx(1)
    assert quotas.request.rates(quotas.now_ms) == {}


def test_a_produce_is_throttled_by_the_quota_that_takes_longer(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/alice", {"producer_byte_rate": "1000", "request_percentage": "10"})
    made = served(quotas, clock, 0, api=ApiKey.PRODUCE, version=9)
    assert quotas.of_produce(made, 10_500, acks=-1) == 500
    assert quotas.produce.queue_size(quotas.now_ms) == 1
    slow = served(quotas, clock, 2_000, api=ApiKey.PRODUCE, version=9)
    assert quotas.of_produce(slow, 0, acks=-1) == 1_000
    assert quotas.request.queue_size(quotas.now_ms) == 1


def test_a_produce_without_an_answer_is_throttled_for_its_bytes_alone(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/alice", {"producer_byte_rate": "1000", "request_percentage": "0.001"})
    made = served(quotas, clock, 3_000, api=ApiKey.PRODUCE, version=9)
    assert quotas.of_produce(made, 11_000, acks=0) == 1_000
    assert made.connection.throttled_until_ns == clock() + 1_000 * MS
    assert quotas.exempt_rate() > 0


def test_a_throttled_fetch_does_not_count_what_it_does_not_send(
    quotas: QuotaManagers, clock: Nanoseconds
) -> None:
    quotas.apply("users/alice", {"consumer_byte_rate": "1000"})
    made = request(ApiKey.FETCH, 11)
    assert quotas.most_fetched(made) == 10_000
    assert quotas.of_fetch(made, 11_000) == 1_000
    assert quotas.of_fetch(made, 10_000) == 0
    assert quotas.fetch.rates(quotas.now_ms) == {("alice", ""): 1_000}
    assert clock.now_ns


def test_a_fetch_has_no_limit_without_a_quota(quotas: QuotaManagers) -> None:
    assert quotas.most_fetched(request(ApiKey.FETCH, 11)) is None
    quotas.apply("users/bob", {"consumer_byte_rate": "1000"})
    assert quotas.most_fetched(request(ApiKey.FETCH, 11)) == (1 << 31) - 1


@pytest.mark.parametrize(("version", "is_strict"), [(5, False), (6, True)])
def test_topic_changes_are_refused_to_new_clients_and_throttle_old_ones(
    quotas: QuotaManagers, clock: Nanoseconds, version: int, is_strict: bool
) -> None:
    quotas.apply("users/alice", {"controller_mutation_rate": "2"})
    made = request(ApiKey.CREATE_TOPICS, version)
    quota = quotas.of_mutations(made, strict_from=6)
    quota.record(30)
    if is_strict:
        with pytest.raises(KafkaError, match="possible again in 4000 ms") as refusal:
            quota.record(1)
        assert refusal.value.error_code is Errors.THROTTLING_QUOTA_EXCEEDED
    else:
        quota.record(1)
    clock.pass_ms(1_000)
    made.respond_fields({"topics": []})
    assert made.connection.throttled_until_ns == clock() + (3_000 if is_strict else 3_500) * MS


def test_topic_changes_use_a_thread_too(quotas: QuotaManagers, clock: Nanoseconds) -> None:
    quotas.apply("users/alice", {"controller_mutation_rate": "2", "request_percentage": "10"})
    made = served(quotas, clock, 1_050, api=ApiKey.CREATE_TOPICS, version=7)
    quotas.of_mutations(made, strict_from=6).record(1)
    made.respond_fields({"topics": []})
    assert made.connection.throttled_until_ns == clock() + 500 * MS


def test_a_value_that_is_no_rate_counts_as_absent(quotas: QuotaManagers) -> None:
    quotas.apply("clients/app", {"producer_byte_rate": "1000"})
    with capture_logs() as lines:
        quotas.apply("clients/app", {"producer_byte_rate": "fast", "consumer_byte_rate": "-1"})
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["quota_ignored"] * 2
    assert quotas.produce.record("User:alice", "app", 1e12, 0) == 0


def test_the_size_of_a_produce_has_its_header(quotas: QuotaManagers) -> None:
    quotas.apply("clients/app", {"producer_byte_rate": "1000"})
    assert quotas.size_of_produce(request(ApiKey.PRODUCE, 8), -1) == 8 + 2 + 3 + 3
    assert quotas.size_of_produce(request(ApiKey.PRODUCE, 9), -1) == 8 + 2 + 3 + 1 + 3


# -- the store


def write(store: ClusterStore, paths: list[str], config: dict[str, str]) -> None:
    quota_nodes.change(store, paths, lambda _before: config)


def ask(api: ApiKey, module: Any, store: ClusterStore, fields: Mapping[str, Any], version: int = 1) -> Any:
    """The decoded response, also of an error for the whole request."""
    ctx: Any = SimpleNamespace(store=store, config=SimpleNamespace(int=lambda _key: 1 << 20))
    body = codec.encode(api, version, "request", fields)
    message = codec.decode(api, version, "request", body)
    try:
        answer = module.handle(request(api, version), message, ctx)
    except KafkaError as error:
        answer = module.error_response(message, error)
    return codec.decode(api, version, "response", codec.encode(api, version, "response", answer))


def alter(
    store: ClusterStore,
    entity: Mapping[str, str | None],
    values: Mapping[str, float | None],
    *,
    validate_only: bool = False,
    version: int = 1,
) -> tuple[Errors, str | None]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    names = [{"entity_type": type_, "entity_name": name} for type_, name in entity.items()]
    fields = {"entries": [{"entity": names, "ops": ops}], "validate_only": validate_only}
    answer = ask(ApiKey.ALTER_CLIENT_QUOTAS, alter_client_quotas, store, fields, version)
    (entry,) = answer.entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == list(entity.items())
    return Errors(entry.error_code.value), entry.error_message


def describe(store: ClusterStore, *components: tuple[str, int, str | None], version: int = 1) -> Any:
    rows = [{"entity_type": type_, "match_type": match, "match": name} for type_, match, name in components]
    fields = {"components": rows, "strict": False}
    return ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas, store, fields, version)


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_altered_is_written_where_kafka_has_it_and_announced(
    store: ClusterStore, version: int
) -> None:
    entity = {"user": "CN=a b", "client-id": None}
    values = {"producer_byte_rate": 1024.0, "request_percentage": 50.0}
    assert alter(store, entity, values, version=version) == (Errors.NONE, None)
    data, _ = store.store.get("/config/users/CN%3Da%20b/clients/<default>")
    assert data == (b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"50.0"}}')
    assert [path for _, path in store.config_changes()] == ["users/CN%3Da%20b/clients/<default>"]
    (entry,) = describe(store, version=version).entries
    assert {each.entity_type: each.entity_name for each in entry.entity} == entity
    assert {each.key: each.value for each in entry.values} == values


def test_an_entity_without_quotas_is_deleted_with_its_empty_parents(store: ClusterStore) -> None:
    alter(store, {"user": "u", "client-id": "c"}, {"producer_byte_rate": 1.0})
    alter(store, {"user": "u"}, {"producer_byte_rate": 1.0})
    alter(store, {"user": "u"}, {"producer_byte_rate": None})
    assert store.entity_config_at("users/u") == {}
    assert store.store.exists("/config/users/u/clients/c"), "a child keeps its parent"
    alter(store, {"user": "u", "client-id": "c"}, {"producer_byte_rate": None})
    assert store.store.children("/config/users") == []
    assert len(store.config_changes()) == 4


def test_a_users_credentials_outlive_its_quotas(store: ClusterStore) -> None:
    write(store, ["users/u"], {"SCRAM-SHA-256": "salt"})
    alter(store, {"user": "u", "client-id": "c"}, {"producer_byte_rate": 1.0})
    alter(store, {"user": "u", "client-id": "c"}, {"producer_byte_rate": None})
    assert store.entity_config_at("users/u") == {"SCRAM-SHA-256": "salt"}
    assert describe(store).entries == ()


def test_a_change_made_at_the_same_time_is_not_lost(store: ClusterStore) -> None:
    write(store, ["users/u"], {"producer_byte_rate": "1"})

    def make(before: dict[str, str]) -> dict[str, str]:
        if "SCRAM-SHA-256" not in before:
            store.set_entity_config("users", "u", {**before, "SCRAM-SHA-256": "salt"})
        return {**before, "producer_byte_rate": "2"}

    quota_nodes.change(store, ["users/u"], make)
    assert store.entity_config_at("users/u") == {"producer_byte_rate": "2", "SCRAM-SHA-256": "salt"}


def test_to_validate_writes_nothing(store: ClusterStore) -> None:
    values = {"producer_byte_rate": 1.0}
    assert alter(store, {"user": "u"}, values, validate_only=True) == (Errors.NONE, None)
    assert quota_nodes.entity_paths(store) == []


@pytest.mark.parametrize(
    ("entity", "values", "text"),
    [
        ({"user": "u"}, {"connection_creation_rate": 1.0}, "is no quota of users/u"),
        ({"ip": "no.such.host.invalid"}, {"connection_creation_rate": 1.0}, "is no IP address"),
        ({"user": "u", "ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}, "cannot be combined"),
        ({"user": "u"}, {"producer_byte_rate": 1.5}, "must be a whole number"),
    ],
)
def test_what_cannot_be_is_refused(
    store: ClusterStore, entity: Mapping[str, str], values: Mapping[str, float], text: str
) -> None:
    error, message = alter(store, entity, values)
    assert error is Errors.INVALID_REQUEST
    assert message is not None
    assert text in message


def test_a_filter_that_cannot_be_gets_an_error(store: ClusterStore) -> None:
    answer = describe(store, ("user", 2, None), ("ip", 2, None))
    assert (answer.error_code.value, answer.entries) == (Errors.INVALID_REQUEST, None)
    assert describe(store, ("team", 2, None)).error_code.value == Errors.UNSUPPORTED_VERSION


# -- the manager of dynamic configs


@pytest.fixture
def manager(store: ClusterStore, quotas: QuotaManagers) -> Iterator[DynamicConfigManager]:
    made = DynamicConfigManager(
        BrokerConfig.from_properties({"zookeeper.connect": "zk", "broker.id": "1", "log.dirs": "/d"}),
        1,
        store,
        on_topic_config=lambda _topic, _config: None,
        on_broker_config=lambda _config: None,
        on_entity_config=quotas.apply,
        local_topics=list,
    )
    yield made
    made.shutdown()


def bound(quotas: QuotaManagers, user: str, client_id: str) -> float:
    return quotas.produce.bound(f"User:{user}", client_id, quotas.now_ms)


def test_quotas_that_were_never_announced_are_read_at_start(
    store: ClusterStore, manager: DynamicConfigManager, quotas: QuotaManagers
) -> None:
    for path in ("users/a%20b", "users/u/clients/c", "clients/<default>"):
        write(store, [path], {"producer_byte_rate": str(len(path))})
    store.store.set("/config/users/u", b"nonsense")
    for name, _ in store.config_changes():
        store.store.delete(f"/config/changes/{name}")
    manager.startup()
    assert bound(quotas, "a b", "any") == len("users/a%20b")
    assert bound(quotas, "u", "c") == len("users/u/clients/c")
    assert bound(quotas, "u", "other") == len("clients/<default>")


def test_a_changed_quota_holds_without_a_restart(
    store: ClusterStore, manager: DynamicConfigManager, quotas: QuotaManagers
) -> None:
    manager.startup()
    alter(store, {"client-id": "c"}, {"producer_byte_rate": 5.0})
    wait_until(lambda: bound(quotas, "u", "c") == 5)
    alter(store, {"client-id": "c"}, {"producer_byte_rate": None})
    wait_until(lambda: bound(quotas, "u", "c") > 5)


def test_a_host_named_in_ips_is_resolved(
    store: ClusterStore, manager: DynamicConfigManager, quotas: QuotaManagers
) -> None:
    write(store, ["ips/localhost"], {"connection_creation_rate": "3"})
    write(store, ["ips/<default>"], {"connection_creation_rate": "9"})
    write(store, ["ips/no.such.host.invalid"], {"connection_creation_rate": "1"})
    write(store, [f"ips/{'a' * 70}"], {"connection_creation_rate": "1"})  # longer than a name may be
    manager.startup()
    rates = quotas._ip_rates
    assert isinstance(rates, IpConnectionRates)
    assert (rates.rate_of("127.0.0.1"), rates.rate_of("10.0.0.1")) == (3, 9)


def test_windows_are_those_of_the_configuration() -> None:
    few = QuotaManagers(Windows(2, 500))
    few.apply("clients/<default>", {"consumer_byte_rate": "1000"})
    assert few.most_fetched(request(ApiKey.FETCH, 11)) == 500
