"""What security keeps in ZooKeeper, written by Landline or by Apache Kafka 3.9.1 and read by the other.

Both are brokers of one cluster. Where Kafka's bytes do not depend on chance, Landline writes the same ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.sasl.credential import to_base64
from broker.sasl.scram_client import ScramTokens
from broker.security.acls import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from broker.zookeeper import znodes
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.store import NoNodeError
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.secured import (
    ADMIN,
    GUEST,
    OWNER,
    PASSWORDS,
    SHA_256,
    SHA_512,
    Acl,
    Pair,
    SecuredBroker,
    await_scram_login,
    create_acls,
    delete_acls,
    scram_login,
    secured_pair,
    set_scram_user,
    znodes_of,
)
from tests.support.znode_tree import read_tree

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TAKEN_UP_S = 60.0
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE = AclOperation.READ, AclOperation.WRITE
ACLS = [
    Acl(TOPIC, "orders", READ),
    Acl(TOPIC, "*", WRITE, permission_type=Permission.DENY, host="10.0.0.1"),
    Acl(TOPIC, "pre.fix_ed-", READ, PatternType.PREFIXED, principal="User:CN=a b,OU=c\\,d,C=DE"),
    Acl(GROUP, "group of ümläuts", READ, principal="User:*"),
    Acl(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE),
    Acl(ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.ALL),
    Acl(ResourceType.DELEGATION_TOKEN, "token", AclOperation.DESCRIBE),
    Acl(ResourceType.USER, "User:owner", AclOperation.CREATE_TOKENS),
]
Entity = Mapping[str, str | None]
QUOTAS: list[tuple[Entity, dict[str, float]]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1024.0}),
    ({"user": "a b/c*ü%"}, {"consumer_byte_rate": 12_345_678_901.0}),
    ({"user": None}, {"request_percentage": 1234.5}),
    ({"client-id": "app"}, {"controller_mutation_rate": 2.25}),
    ({"client-id": None}, {"request_percentage": 5000.0}),
    ({"user": "alice", "client-id": "app/1"}, {"producer_byte_rate": 1e15}),
    ({"user": "alice", "client-id": None}, {"producer_byte_rate": 9e18}),
    ({"user": None, "client-id": "app"}, {"consumer_byte_rate": 3.0}),
    ({"user": None, "client-id": None}, {"consumer_byte_rate": 10_000_000.0}),
    ({"ip": "10.1.2.3"}, {"connection_creation_rate": 7.0}),
    ({"ip": None}, {"connection_creation_rate": 1_000.0}),
]
NO_OWNER = {"owner_principal_type": None, "owner_principal_name": None}


class Roles(NamedTuple):
    """Who writes, and who reads what was written."""

    writer: SecuredBroker
    reader: SecuredBroker


@pytest.fixture(scope="module")
def pair(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with secured_pair(zookeeper, tmp_path_factory.mktemp("znodes"), in_one_cluster=True) as made:
        yield made


@pytest.fixture(scope="module")
def store(pair: Pair) -> Iterator[ZooKeeperStore]:
    with znodes_of(pair.kafka.zk_connect) as opened:
        yield opened


@pytest.fixture(params=["kafka-writes", "landline-writes"])
def roles(request: pytest.FixtureRequest, pair: Pair) -> Roles:
    return Roles(*pair) if request.param == "kafka-writes" else Roles(pair.landline, pair.kafka)


def nodes(pair: Pair, *roots: str) -> dict[str, bytes | None]:
    """All znodes with content below the roots."""
    tree = read_tree(pair.kafka.zk_connect)
    return {path: node.data for path, node in tree.items() if path.startswith(roots) and node.data}


def same_bytes(pair: Pair, write: Callable[[SecuredBroker], None], *roots: str) -> dict[str, bytes | None]:
    """Lets each write in turn; what is there afterwards is to be the same. ``write`` begins by removing all."""
    found = []
    for broker in pair:
        write(broker)
        found.append(nodes(pair, *roots))
    assert found[1] == found[0]
    return found[0]


def described_acls(broker: SecuredBroker) -> set[Acl]:
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    none = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    with broker.login(ADMIN) as admin:
        answer = admin.ask(ApiKey.DESCRIBE_ACLS, 3, {**anything, **none})
    assert answer.error_code == Errors.NONE
    return {
        Acl(
            ResourceType(row.resource_type),
            row.resource_name,
            AclOperation(acl.operation),
            PatternType(row.pattern_type),
            Permission(acl.permission_type),
            acl.principal,
            acl.host,
        )
        for row in answer.resources
        for acl in row.acls
    }


def test_acls_are_the_same_bytes(pair: Pair) -> None:
    def write(broker: SecuredBroker) -> None:
        with broker.login(ADMIN) as admin:
            wait_until(lambda: delete_acls(admin, None) == 0, TAKEN_UP_S, 0.2, "no ACL is left")
            assert create_acls(admin, ACLS) == [Errors.NONE] * len(ACLS)

    found = same_bytes(pair, write, "/kafka-acl/", "/kafka-acl-extended/")
    assert len(found) == len(ACLS)


def test_acls_of_one_kind_are_read_and_deleted_by_the_other(roles: Roles) -> None:
    several = [
        *ACLS,
        Acl(TOPIC, "orders", WRITE),
        Acl(TOPIC, "orders", READ, permission_type=Permission.DENY, host="10.0.0.2"),
        Acl(TOPIC, "orders", READ, principal="User:another"),
        Acl(TOPIC, "orders", AclOperation.DELETE),
        Acl(TOPIC, "orders", AclOperation.ALTER_CONFIGS),
    ]
    with roles.writer.login(ADMIN) as admin:
        wait_until(lambda: delete_acls(admin, None) == 0, TAKEN_UP_S, 0.2, "no ACL is left")
        create_acls(admin, several)
    for broker in roles:
        wait_until(lambda at=broker: described_acls(at) == set(several), TAKEN_UP_S, 0.2, f"{broker} has all")
    with roles.reader.login(ADMIN) as admin:
        assert delete_acls(admin, "User:another") == 1
        assert delete_acls(admin) == len(several) - 3  # another's, a certificate's, everybody's
    rest = {acl for acl in several if acl.principal.startswith(("User:CN", "User:*"))}
    for broker in roles:
        wait_until(lambda at=broker: described_acls(at) == rest, TAKEN_UP_S, 0.2, f"{broker} has two")


def test_an_acl_of_one_kind_decides_at_the_other(roles: Roles) -> None:
    def is_refused(guest: RawClient) -> bool:
        answer = guest.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        return bool(answer.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED)

    allowed = Acl(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE)
    with roles.writer.login(ADMIN) as admin, roles.reader.login(GUEST) as guest:
        delete_acls(admin)
        wait_until(lambda: is_refused(guest), TAKEN_UP_S, what="nothing is allowed")
        create_acls(admin, [allowed])
        wait_until(lambda: not is_refused(guest), TAKEN_UP_S, what="it is allowed")
        create_acls(admin, [allowed._replace(permission_type=Permission.DENY)])
        wait_until(lambda: is_refused(guest), TAKEN_UP_S, what="it is denied")
        delete_acls(admin)


def alter_quotas(broker: SecuredBroker, *, remove: bool = False) -> None:
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value, "remove": remove} for key, value in values.items()],
        }
        for entity, values in QUOTAS
    ]
    with broker.login(ADMIN) as admin:
        answer = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})
    assert {entry.error_code for entry in answer.entries} == {Errors.NONE}, answer


def described_quotas(broker: SecuredBroker) -> list[tuple[Entity, dict[str, float]]]:
    with broker.login(ADMIN) as admin:
        answer = admin.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    assert answer.error_code == Errors.NONE
    rows = [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(rows, key=str)


def test_client_quotas_are_the_same_bytes_and_leave_the_same_znodes(pair: Pair) -> None:
    roots = ("/config/users", "/config/clients", "/config/ips")

    def write(broker: SecuredBroker) -> None:
        alter_quotas(broker, remove=True)
        alter_quotas(broker)

    found = same_bytes(pair, write, *roots)
    assert sum(b"rate" in (data or b"") or b"percent" in (data or b"") for data in found.values()) == len(
        QUOTAS
    )
    removed = same_bytes(pair, lambda broker: alter_quotas(broker, remove=True), *roots)
    assert not any(b"rate" in (data or b"") for data in removed.values())


def test_client_quotas_of_one_kind_are_read_and_removed_by_the_other(roles: Roles) -> None:
    alter_quotas(roles.writer)
    expected = sorted(((dict(entity), values) for entity, values in QUOTAS), key=str)
    for broker in roles:
        assert described_quotas(broker) == expected
    alter_quotas(roles.reader, remove=True)
    for broker in roles:
        assert described_quotas(broker) == []


BAD_QUOTAS: list[tuple[Entity, str, float]] = [
    ({"user": "bad"}, "producer_byte_rate", 1.5),
    ({"user": "bad"}, "connection_creation_rate", 1.0),
    ({"user": "bad"}, "no_such_rate", 1.0),
    ({"ip": "10.1.2.3"}, "producer_byte_rate", 1.0),
    ({"ip": "10.1.2.3"}, "connection_creation_rate", 1.5),
    ({"ip": "not an address"}, "connection_creation_rate", 1.0),
    ({"ip": "10.1.2.3", "user": "bad"}, "connection_creation_rate", 1.0),
    ({"group": "bad"}, "producer_byte_rate", 1.0),
    ({}, "producer_byte_rate", 1.0),
    ({"client-id": ""}, "producer_byte_rate", 1.0),
]


@pytest.mark.parametrize(("entity", "key", "value"), BAD_QUOTAS, ids=str)
def test_a_bad_quota_is_refused_by_both(pair: Pair, entity: Entity, key: str, value: float) -> None:
    def refusal(broker: SecuredBroker) -> Errors:
        rows = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        ops = [{"key": key, "value": value, "remove": False}]
        with broker.login(ADMIN) as admin:
            asked = {"entries": [{"entity": rows, "ops": ops}], "validate_only": True}
            (entry,) = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, asked).entries
        return Errors(entry.error_code)

    kafka, landline = pair.each(refusal)
    assert landline is kafka


def give_control(store: ZooKeeperStore, broker: SecuredBroker) -> None:
    """Only the controller changes credentials."""

    def has_it() -> bool:
        with broker.login(ADMIN) as admin:
            asked = {"topics": [], "allow_auto_topic_creation": False}
            knows = admin.ask(ApiKey.METADATA, 4, asked).controller_id == broker.process.broker_id
        holder = json.loads(store.get(znodes.CONTROLLER)[0])["brokerid"]
        if holder != broker.process.broker_id:
            with suppress(NoNodeError):
                store.delete(znodes.CONTROLLER)
        return bool(knows and holder == broker.process.broker_id)

    wait_until(has_it, 120, 0.3, f"{broker.kind.value} controls")


def described_scram(broker: SecuredBroker) -> list[tuple[int, int]]:
    with broker.login(ADMIN) as admin:
        answer = admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": GUEST}]})
    (row,) = answer.results
    return sorted((int(info.mechanism), int(info.iterations)) for info in row.credential_infos)


def delete_scram_user(broker: SecuredBroker, number: int) -> Errors:
    asked = {"deletions": [{"name": GUEST, "mechanism": number}], "upsertions": []}
    with broker.login(ADMIN) as admin:
        (result,) = admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked).results
    return Errors(result.error_code)


def test_scram_credentials_are_the_same_bytes(pair: Pair, store: ZooKeeperStore) -> None:
    def write(broker: SecuredBroker) -> None:
        give_control(store, broker)
        for number in (1, 2):
            delete_scram_user(broker, number)
        set_scram_user(broker, GUEST, SHA_512)
        set_scram_user(broker, GUEST, SHA_256)

    found = same_bytes(pair, write, f"/config/users/{GUEST}")
    assert set(json.loads(found[f"/config/users/{GUEST}"] or b"")["config"]) == {SHA_256, SHA_512}


def test_users_of_one_kind_log_in_at_the_other_until_either_removes_them(
    roles: Roles, store: ZooKeeperStore
) -> None:
    give_control(store, roles.writer)
    for mechanism in (SHA_256, SHA_512):
        set_scram_user(roles.writer, GUEST, mechanism)
        for broker in roles:
            await_scram_login(broker, GUEST, mechanism)
    for broker in roles:
        assert described_scram(broker) == [(1, 4096), (2, 4096)]
    give_control(store, roles.reader)
    assert delete_scram_user(roles.reader, 1) is Errors.NONE
    for broker in roles:
        wait_until(lambda at=broker: is_refused(at), TAKEN_UP_S, 0.2, f"{broker} knows the user no more")
        assert described_scram(broker) == [(2, 4096)]


def is_refused(broker: SecuredBroker) -> bool:
    with broker.connect() as client:
        tokens = ScramTokens(SHA_256, GUEST, PASSWORDS[GUEST])
        return scram_login(client, tokens) is Errors.SASL_AUTHENTICATION_FAILED


def new_token(broker: SecuredBroker) -> Any:
    renewer = {"principal_type": "User", "principal_name": GUEST}
    with broker.login(OWNER) as owner:
        asked = {**NO_OWNER, "renewers": [renewer], "max_lifetime": 3_600_000}
        token = owner.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, asked)
    assert token.error_code == Errors.NONE
    return token


def login_by(broker: SecuredBroker, token: Any) -> Errors:
    with broker.connect() as client:
        tokens = ScramTokens(SHA_256, token.token_id, to_base64(token.hmac), by_token=True)
        return scram_login(client, tokens)


def described_tokens(broker: SecuredBroker) -> dict[str, Any]:
    """All that the owner sees but the order."""
    with broker.login(OWNER) as owner:
        answer = owner.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
    assert answer.error_code == Errors.NONE
    return {token.token_id: token for token in answer.tokens}


def test_tokens_of_one_kind_log_in_at_the_other_until_either_ends_them(roles: Roles) -> None:
    token = new_token(roles.writer)
    wait_until(lambda: login_by(roles.reader, token) is Errors.NONE, TAKEN_UP_S, what="the token is known")
    seen = [described_tokens(broker)[token.token_id] for broker in roles]
    assert seen[0] == seen[1]
    assert seen[0].hmac == token.hmac
    with roles.reader.login(GUEST) as renewer:
        renewed = renewer.ask(ApiKey.RENEW_DELEGATION_TOKEN, 2, {"hmac": token.hmac, "renew_period": 60_000})
    assert renewed.error_code == Errors.NONE
    lasts_until_ms = round(renewed.expiry_timestamp.timestamp() * 1000)
    for broker in roles:
        wait_until(
            lambda at=broker: described_tokens(at)[token.token_id].expiry_timestamp == lasts_until_ms,
            TAKEN_UP_S,
            what=f"{broker.kind.value} knows how long it lasts now",
        )
    with roles.reader.login(OWNER) as owner:
        ending = {"hmac": token.hmac, "expiry_time_period": -1}
        assert owner.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ending).error_code == Errors.NONE
    for broker in roles:
        wait_until(
            lambda at=broker: login_by(at, token) is Errors.SASL_AUTHENTICATION_FAILED,
            TAKEN_UP_S,
            what=f"{broker.kind.value} refuses the token",
        )


def test_tokens_are_the_same_bytes_but_for_their_ids_and_times(pair: Pair) -> None:
    def form(broker: SecuredBroker) -> bytes:
        token = new_token(broker)
        data = nodes(pair, "/delegation_token/tokens")[f"/delegation_token/tokens/{token.token_id}"]
        return re.sub(rb"\d{13}", b"time", (data or b"").replace(token.token_id.encode(), b"id"))

    kafka, landline = pair.each(form)
    assert landline == kafka
