"""Requests that need ZooKeeper while it is away, and writes that it does not take: Kafka's errors, and one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.config.broker_config import BrokerConfig
from broker.controller.topic_admin import TopicAdmin
from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.security.acl_authorizer import AclAuthorizer
from broker.server.access import Access
from broker.server.apis.table import Apis
from broker.server.audit import AuditLog
from broker.server.broker_peers import BrokerPeers
from broker.server.delegation_tokens import DelegationTokens
from broker.server.dynamic_config import DynamicConfigManager
from broker.server.quotas import QuotaManagers
from broker.utils.line_budget import LineBudget
from broker.utils.scheduler import KafkaScheduler
from broker.zookeeper import refusals
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import ConnectionLossError, SessionExpiredError, StoreError, TooLargeError
from broker.zookeeper.token_store import TokenStore
from tests.support.clocks import ManualClock
from tests.support.contexts import context_of

TOPIC, BROKER = 2, 4
ADMIN = "User:admin"
TOPICS = [f"t{number}" for number in range(20)]
_OPERATIONS = frozenset(
    {"create", "ensure_path", "get", "set", "delete", "exists", "children", "get_many", "children_many"}
    | {"multi", "multi_many"}
)


class FailingStore:
    """A Store that raises what it is told to, for the operations whose name and path contain ``only``."""

    def __init__(self) -> None:
        self._store = EmbeddedStore()
        self._store.connect()
        self.error: Callable[[str], StoreError] | None = None
        self.only = ""
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in _OPERATIONS:
            return found

        def operation(*args: Any, **options: Any) -> Any:
            path = args[0] if isinstance(args[0], str) else str(args[0][:1])
            if self.error is not None and self.only in f"{name} {path}":
                self.failed.append(path)
                raise self.error(path)
            return found(*args, **options)

        return operation


@dataclass
class Broker:
    """The parts of a broker that these requests need. Its handlers run at once."""

    failing: FailingStore
    store: ClusterStore
    config: BrokerConfig
    dynamic_config: DynamicConfigManager
    topic_admin: TopicAdmin
    tokens: DelegationTokens
    access: Access
    broker_id: int = 1
    peers: BrokerPeers = field(default_factory=BrokerPeers)
    quotas: QuotaManagers = field(default_factory=QuotaManagers)
    metadata_cache: Any = field(
        default_factory=lambda: SimpleNamespace(
            contains=TOPICS.__contains__, partition_count=lambda _topic: 1
        )
    )
    controller: Any = field(
        default_factory=lambda: SimpleNamespace(is_active=True, is_deleting=lambda _topic: False)
    )

    def submit(
        self, work: Callable[[], None], _request: Request | None = None, *, dear: bool = False
    ) -> bool:
        work()
        return True

    submit_long = submit

    def ask(self, key: ApiKey, fields: dict[str, Any]) -> Any:
        """The answer as a client decodes it, at the newest version."""
        version = APIS[key].max_version
        body = memoryview(codec.encode(key, version, "request", fields))
        info = ConnectionInfo("1", "10.0.0.9", "SASL", "SASL_PLAINTEXT", ADMIN)
        request = Request(key, version, 7, "tester", body, info, 0, lambda _request: None)
        self.apis.dispatch(request)
        assert request.payload is not None, "an answer, and not a closed connection"
        frame = b"".join(bytes(piece) for piece in request.payload)  # type: ignore[arg-type]
        return codec.decode(key, version, "response", frame[9:])

    def __post_init__(self) -> None:
        self.apis = Apis(context_of(self))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, scheduler: KafkaScheduler) -> Iterator[Broker]:
    clock = ManualClock()
    # As many lines as it likes: whether there is one for each is what is to be seen.
    budget = LineBudget(clock.monotonic_ms, per_second=1, at_once=1_000)
    monkeypatch.setattr(refusals, "_lines", budget)
    failing = FailingStore()
    store = ClusterStore(failing)  # type: ignore[arg-type]
    store.create_top_level_paths()
    config = BrokerConfig.from_properties({"zookeeper.connect": "zk", "broker.id": "1", "log.dirs": "/d"})
    manager = DynamicConfigManager(
        config, 1, store, on_topic_config=lambda *_: None, on_broker_config=lambda _: None, local_topics=list
    )
    tokens = DelegationTokens(TokenStore(failing), "key", clock, renew_ms=1_000, max_ms=10_000)  # type: ignore[arg-type]
    tokens.startup(scheduler, 3_600_000, lambda: True)
    authorizer = AclAuthorizer(failing)  # type: ignore[arg-type]
    authorizer.start({"super.users": ADMIN})
    made = Broker(
        failing,
        store,
        config,
        manager,
        TopicAdmin(config, store),
        tokens,
        Access(authorizer, AuditLog(clock)),
    )
    yield made
    failing.error = None
    authorizer.close()
    tokens.shutdown()


def acl(name: str) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


def acl_filter(name: str | None, kind: int = 2, how: int = 3) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": how,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def describes(*names: str, kind: int = TOPIC) -> dict[str, Any]:
    rows = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for name in names]
    return {"resources": rows, "include_synonyms": False, "include_documentation": False}


def alters(name: str, value: str = "5") -> dict[str, Any]:
    config = {"name": "retention.ms", "config_operation": 0, "value": value}
    return {"resource_type": TOPIC, "resource_name": name, "configs": [config]}


def creates(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


QUOTA: dict[str, Any] = {
    "entity": [{"entity_type": "user", "entity_name": "alice"}],
    "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
}
TOKEN: dict[str, Any] = {
    "owner_principal_type": None,
    "owner_principal_name": None,
    "renewers": [],
    "max_lifetime": -1,
}
REQUESTS: dict[ApiKey, tuple[dict[str, Any], str]] = {
    ApiKey.DESCRIBE_CONFIGS: (describes("t1"), "results"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        {"resources": [alters("t1")], "validate_only": False},
        "responses",
    ),
    ApiKey.CREATE_TOPICS: (
        {"topics": [creates("new")], "timeout": 1000, "validate_only": False},
        "topics",
    ),
    ApiKey.CREATE_ACLS: ({"creations": [acl("t1")]}, "results"),
    ApiKey.DELETE_ACLS: ({"filters": [acl_filter("t1")]}, "filter_results"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ({"components": [], "strict": False}, ""),
    ApiKey.ALTER_CLIENT_QUOTAS: ({"entries": [QUOTA], "validate_only": False}, "entries"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ({"users": None}, ""),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
        "results",
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: (TOKEN, ""),
}


@pytest.mark.parametrize("error", [ConnectionLossError, SessionExpiredError])
@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: key.name.lower())
def test_while_zookeeper_is_away_a_request_times_out_and_one_line_says_which(
    broker: Broker, key: ApiKey, error: type[StoreError]
) -> None:
    fields, rows = REQUESTS[key]
    broker.failing.error = error
    with capture_logs() as lines:
        answer = broker.ask(key, fields)
    (row,) = getattr(answer, rows) if rows else [answer]
    assert row.error_code.value == Errors.REQUEST_TIMED_OUT
    lines = [line for line in lines if "request" in line["event"]]
    assert [(line["event"], line["log_level"]) for line in lines] == [("request_not_carried_out", "warning")]
    assert {"reason", "do", "answered"} <= lines[0].keys()
    assert "exc_info" not in lines[0]


def test_after_one_topic_timed_out_zookeeper_is_not_asked_for_the_others(broker: Broker) -> None:
    broker.failing.error = ConnectionLossError
    asked = describes(*TOPICS)
    asked["resources"] += describes("1", kind=BROKER)["resources"]
    with capture_logs() as lines:
        *topics, own = broker.ask(ApiKey.DESCRIBE_CONFIGS, asked).results
    assert {row.error_code.value for row in topics} == {Errors.REQUEST_TIMED_OUT}
    assert len(topics) == len(TOPICS)
    assert len([path for path in broker.failing.failed if "/config/topics/" in path]) == 1
    assert [line["of"] for line in lines if line["event"] == "request_not_carried_out"] == ["t0"]
    assert own.error_code.value == Errors.NONE, "it needs no ZooKeeper"
    assert own.configs


def test_configs_that_cannot_be_read_are_an_error_of_their_topic_alone(broker: Broker) -> None:
    broker.store.set_entity_config("topics", "t2", {"retention.ms": "7"})
    broker.failing.create("/config/topics/t1", b"{")
    spoilt, good = broker.ask(ApiKey.DESCRIBE_CONFIGS, describes("t1", "t2")).results
    assert spoilt.error_code.value == Errors.UNKNOWN_SERVER_ERROR
    assert "/config/topics/t1" in spoilt.error_message
    assert good.error_code.value == Errors.NONE
    assert "7" in {config.value for config in good.configs}


def test_what_is_too_large_for_a_znode_is_refused_and_the_rest_is_done(broker: Broker) -> None:
    broker.store.set_entity_config("topics", "t1", {})
    broker.failing.error, broker.failing.only = TooLargeError, "set /config/topics/t1"
    with capture_logs() as lines:
        fields = {"resources": [alters("t1"), alters("t2")], "validate_only": False}
        refused, done = broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields).responses
    assert refused.error_code.value == Errors.POLICY_VIOLATION
    assert "/config/topics/t1" in refused.error_message
    assert done.error_code.value == Errors.NONE
    assert broker.store.topic_configs("t2") == {"retention.ms": "5"}
    (line,) = [line for line in lines if line["event"] == "request_not_carried_out"]
    assert (line["api"], line["of"], line["answered"]) == (
        "incremental_alter_configs",
        "t1",
        "POLICY_VIOLATION",
    )


def test_a_topic_that_is_too_large_for_its_znode_leaves_no_config(broker: Broker) -> None:
    broker.failing.error, broker.failing.only = TooLargeError, "create /brokers/topics/new"
    with pytest.raises(TooLargeError):
        broker.store.create_topic("new", {0: (1,)}, {"retention.ms": "5"})
    assert "new" not in broker.store.entity_names("topics")


def test_acls_that_could_not_be_read_are_not_said_to_be_none(broker: Broker) -> None:
    """An administrator who takes a right away must not be told that there was nothing to take."""
    assert (
        broker.ask(ApiKey.CREATE_ACLS, {"creations": [acl("t1"), acl("t2")]}).results[0].error_code.value == 0
    )
    broker.failing.error = ConnectionLossError
    for wanted in (acl_filter("t1"), acl_filter(None, how=1), acl_filter("unknown")):
        (result,) = broker.ask(ApiKey.DELETE_ACLS, {"filters": [wanted]}).filter_results
        codes = {result.error_code.value} | {row.error_code.value for row in result.matching_acls}
        assert codes - {Errors.NONE} == {Errors.REQUEST_TIMED_OUT}
    broker.failing.error = None
    (result,) = broker.ask(ApiKey.DELETE_ACLS, {"filters": [acl_filter("unknown")]}).filter_results
    assert (result.error_code.value, result.matching_acls) == (Errors.NONE, ())
