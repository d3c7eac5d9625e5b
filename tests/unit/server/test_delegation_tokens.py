"""Delegation tokens: Kafka's znodes and rules, and a login by SCRAM with what a token is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.sasl.credential import to_base64
from broker.sasl.exchange import LoginIdentity
from broker.sasl.scram import ScramExchange
from broker.sasl.scram_client import ScramTokens
from broker.security.acls import AclOperation, ResourceType
from broker.security.authorizer import Authorizer
from broker.server.access import Access
from broker.server.apis import delegation_tokens as apis
from broker.server.audit import AuditLog
from broker.server.delegation_tokens import DelegationTokens
from broker.utils.scheduler import KafkaScheduler
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import ConnectionLossError, SessionEvent
from broker.zookeeper.token_store import TOKENS, TokenInfo, TokenStore, decode_token, encode_token
from broker.zookeeper.znodes import BadZnodeError
from rig.wait import wait_until
from tests.support.clocks import ManualClock
from tests.support.sasl_frames import DECOYS

RENEW_MS, MAX_MS = 1_000, 10_000
ALICE, BOB = "User:alice", "User:bob"


@pytest.fixture
def store() -> EmbeddedStore:
    return EmbeddedStore(None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def manager(store: EmbeddedStore, clock: ManualClock, scheduler: KafkaScheduler) -> DelegationTokens:
    tokens = DelegationTokens(TokenStore(store), "key", clock, renew_ms=RENEW_MS, max_ms=MAX_MS)
    tokens.startup(scheduler, 3_600_000, lambda: True)
    return tokens


@pytest.fixture
def tokens(store: EmbeddedStore, clock: ManualClock, scheduler: KafkaScheduler) -> Iterator[DelegationTokens]:
    made = manager(store, clock, scheduler)
    yield made
    made.shutdown()


def test_a_token_is_stored_as_by_kafka_without_its_secret(
    store: EmbeddedStore, tokens: DelegationTokens
) -> None:
    token = tokens.create(ALICE, (BOB,), 5_000)
    data, _ = store.get(f"{TOKENS}/{token.token_id}")
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1_000_000,
        "maxTimestamp": 1_005_000,
        "expiryTimestamp": 1_001_000,
        "tokenId": token.token_id,
    }
    assert decode_token("", data) == token
    assert len(tokens.secret_of(token)) == 64


def test_old_versions_are_read_and_others_are_not() -> None:
    token = TokenInfo("id", ALICE, ALICE, (), 1, 2, 3)
    value = json.loads(encode_token(token))
    del value["tokenRequester"]
    assert decode_token("", json.dumps({**value, "version": 1}).encode()) == token
    for wrong in ({"version": 4}, {"issueTimestamp": "x"}, {"renewers": None}):
        with pytest.raises(BadZnodeError):
            decode_token("", json.dumps({**value, **wrong}).encode())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_by_scram_with_id_and_secret(tokens: DelegationTokens, mechanism: str) -> None:
    token = tokens.create(ALICE, (), 0)
    exchange = ScramExchange(mechanism, lambda user, _by_token: tokens.find(mechanism, user), DECOYS)
    client = ScramTokens(mechanism, token.token_id, to_base64(tokens.secret_of(token)), by_token=True)
    challenge = exchange.answer(client.next(b"") or b"")
    exchange.answer(client.next(challenge) or b"")
    assert exchange.identity == LoginIdentity("alice", token.expires_ms, by_token=True)


def test_an_expired_token_is_no_credential_and_is_removed(
    store: EmbeddedStore, tokens: DelegationTokens, clock: ManualClock
) -> None:
    token = tokens.create(ALICE, (), 0)
    assert tokens.find("SCRAM-SHA-256", token.token_id) is not None
    clock.now_ms += RENEW_MS + 1
    assert tokens.find("SCRAM-SHA-256", token.token_id) is None
    tokens.remove_expired()
    assert store.children(TOKENS) == []


def test_owner_and_renewers_renew_up_to_the_longest_lifetime(
    tokens: DelegationTokens, clock: ManualClock
) -> None:
    token = tokens.create(ALICE, (BOB,), 0)
    secret = tokens.secret_of(token)
    assert tokens.renew(BOB, secret, 5_000) == clock.now_ms + 5_000
    assert tokens.renew(ALICE, secret, -1) == clock.now_ms + RENEW_MS
    assert tokens.renew(ALICE, secret, 99_000) == clock.now_ms + MAX_MS
    for principal, given, error in (
        ("User:eve", secret, Errors.DELEGATION_TOKEN_OWNER_MISMATCH),
        (ALICE, b"wrong", Errors.DELEGATION_TOKEN_NOT_FOUND),
    ):
        with pytest.raises(KafkaError) as refusal:
            tokens.renew(principal, given, 1)
        assert refusal.value.error_code is error
    clock.now_ms += MAX_MS + 1
    with pytest.raises(KafkaError) as refusal:
        tokens.renew(ALICE, secret, 1)
    assert refusal.value.error_code is Errors.DELEGATION_TOKEN_EXPIRED


def test_a_token_expires_now_or_at_a_time(tokens: DelegationTokens, clock: ManualClock) -> None:
    token = tokens.create(ALICE, (), 0)
    secret = tokens.secret_of(token)
    assert tokens.expire(ALICE, secret, 10) == clock.now_ms + 10
    assert tokens.expire(ALICE, secret, -1) == clock.now_ms
    assert tokens.all() == ()


def test_other_brokers_take_up_changes_and_know_the_secret(
    store: EmbeddedStore, clock: ManualClock, scheduler: KafkaScheduler
) -> None:
    one, other = (manager(store, clock, scheduler) for _ in range(2))
    token = one.create(ALICE, (), 0)
    wait_until(lambda: other.all() == (token,), what="the other broker knows it")
    assert other.secret_of(token) == one.secret_of(token)
    other.expire(ALICE, other.secret_of(token), -1)
    wait_until(lambda: one.all() == (), what="the first one has forgotten it")
    late = manager(store, clock, scheduler)
    assert late.all() == ()
    for each in (one, other, late):
        each.shutdown()


def test_however_often_it_is_woken_while_the_store_is_away_it_tries_again_once(
    store: EmbeddedStore, tokens: DelegationTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try waits for the store as long as a session, and holds a thread meanwhile."""
    monkeypatch.setattr("broker.zookeeper.change_follower.RETRY_S", 0.01)
    tries: list[str] = []
    asked, go_on = threading.Event(), threading.Event()
    back = tokens._store.changes

    def away(after: str) -> list[tuple[str, str]]:
        tries.append(after)
        asked.set()
        go_on.wait(30)
        if len(tries) < 3:
            raise ConnectionLossError("away")
        return back(after)

    monkeypatch.setattr(tokens._store, "changes", away)
    tokens.on_session_event(SessionEvent.CONNECTED)
    assert asked.wait(30)
    for _ in range(50):
        tokens.on_session_event(SessionEvent.CONNECTED)
    go_on.set()
    wait_until(lambda: len(tries) >= 3, what="the try that succeeds")
    token = tokens.create(ALICE, (), 0)
    wait_until(lambda: tokens._last_change, what="its announcement is taken up")
    assert tokens.all() == (token,)
    assert len(tries) <= 5


def test_what_was_announced_and_purged_while_the_session_was_gone_is_taken_up(
    store: EmbeddedStore, tokens: DelegationTokens
) -> None:
    ended = tokens.create(ALICE, (), 0)
    made = replace(ended, token_id="made")
    store.create(
        f"{TOKENS}/made", store.get(f"{TOKENS}/{ended.token_id}")[0].replace(ended.token_id.encode(), b"made")
    )
    store.delete(f"{TOKENS}/{ended.token_id}")
    tokens.on_session_event(SessionEvent.EXPIRED)
    tokens.on_session_event(SessionEvent.CONNECTED)
    wait_until(lambda: tokens.all() == (made,), what="it knows what is there")


def test_what_one_user_may_keep_is_bounded(tokens: DelegationTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.server.delegation_tokens._MOST_OF_OWNER", 2)
    for _ in range(2):
        tokens.create(ALICE, (), 0)
    tokens.create(BOB, (), 0)
    for renewers, principal, error in (
        ((), ALICE, Errors.POLICY_VIOLATION),
        (("User:" + "x" * 4_100,), BOB, Errors.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError) as refusal:
            tokens.create(principal, renewers, 0)
        assert refusal.value.error_code is error


def ask(
    tokens: DelegationTokens | None,
    key: ApiKey,
    fields: Any,
    *,
    access: Access | None = None,
    **connection: Any,
) -> Any:
    """The answer as a client decodes it, at the newest version."""
    info = ConnectionInfo("id", "host", "SASL", "SASL_PLAINTEXT", ALICE)
    for name, value in connection.items():
        setattr(info, name, value)
    version = 3 if key in (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN) else 2
    message = codec.decode(key, version, "request", codec.encode(key, version, "request", fields))
    handle = {
        ApiKey.CREATE_DELEGATION_TOKEN: apis.create,
        ApiKey.RENEW_DELEGATION_TOKEN: apis.renew,
        ApiKey.EXPIRE_DELEGATION_TOKEN: apis.expire,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: apis.describe,
    }[key]
    request = Request(key, version, 1, "tester", memoryview(b""), info, 0, lambda *_: None)
    answer = handle(request, message, SimpleNamespace(tokens=tokens, access=access))  # type: ignore[arg-type]
    return codec.decode(key, version, "response", codec.encode(key, version, "response", answer))


def new(owner: str | None = None, renewer_type: str = "User") -> dict[str, Any]:
    return {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": renewer_type, "principal_name": "bob"}],
        "max_lifetime": -1,
    }


def test_tokens_are_made_described_renewed_and_ended_by_request(tokens: DelegationTokens) -> None:
    made = ask(tokens, ApiKey.CREATE_DELEGATION_TOKEN, new())
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
        0,
        "alice",
        "alice",
    )
    for principal, owners, count in (
        (ALICE, None, 1),
        (BOB, None, 1),
        ("User:eve", None, 0),
        (ALICE, [], 0),
        (ALICE, ["bob"], 1),
        (ALICE, ["eve"], 0),
    ):
        named = (
            None
            if owners is None
            else [{"principal_type": "User", "principal_name": each} for each in owners]
        )
        described = ask(tokens, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": named}, principal=principal)
        assert len(described.tokens) == count
        assert all(token.hmac == made.hmac for token in described.tokens)
    renewed = ask(
        tokens, ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": made.hmac, "renew_period": 500}, principal=BOB
    )
    assert renewed.error_code == 0
    ended = ask(tokens, ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": made.hmac, "expiry_time_period": -1})
    assert ended.error_code == 0
    assert tokens.all() == ()


@pytest.mark.parametrize(
    ("fields", "connection", "error"),
    [
        (new(), {"security_protocol": "PLAINTEXT"}, Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (
            new(),
            {"security_protocol": "SSL", "principal": "User:ANONYMOUS"},
            Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ),
        (new(), {"token_authenticated": True}, Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (new("bob"), {}, Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        (new(renewer_type="Group"), {}, Errors.INVALID_PRINCIPAL_TYPE),
    ],
)
def test_a_token_is_refused_with_kafkas_code(
    tokens: DelegationTokens, fields: Any, connection: Any, error: Errors
) -> None:
    refused = ask(tokens, ApiKey.CREATE_DELEGATION_TOKEN, fields, **connection)
    assert (refused.error_code, refused.hmac) == (error, b"")


def test_without_a_secret_there_are_no_tokens() -> None:
    off = Errors.DELEGATION_TOKEN_AUTH_DISABLED
    assert ask(None, ApiKey.CREATE_DELEGATION_TOKEN, new()).error_code == off
    assert ask(None, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None}).error_code == off


Right = tuple[AclOperation, ResourceType, str]
CREATE: Right = (AclOperation.CREATE_TOKENS, ResourceType.USER, ALICE)


class Rights(Authorizer):
    """Allows what it is told to."""

    def __init__(self, *rights: Right) -> None:
        self.rights = rights

    def authorize(self, requester: Any, operation: Any, resource_type: Any, name: str) -> bool:
        return (operation, resource_type, name) in self.rights


def allowing(*rights: Right) -> Access:
    return Access(Rights(*rights), AuditLog(ManualClock()))


def test_a_token_of_another_owner_needs_create_tokens_on_that_user(tokens: DelegationTokens) -> None:
    key = ApiKey.CREATE_DELEGATION_TOKEN
    denied = Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    for access in (None, allowing(), allowing((*CREATE[:2], BOB))):
        refused = ask(tokens, key, new("alice"), access=access, principal="User:eve")
        assert (refused.error_code, refused.hmac) == (denied, b"")
    made = ask(tokens, key, new("alice"), access=allowing(CREATE), principal="User:eve")
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "eve")
    (token,) = tokens.all()
    assert (token.owner, token.requester) == (ALICE, "User:eve")
    login = tokens.find("SCRAM-SHA-256", made.token_id)
    assert login is not None
    assert login.name == "alice"
    renewing = {"hmac": made.hmac, "renew_period": -1}
    answer = ask(tokens, ApiKey.RENEW_DELEGATION_TOKEN, renewing, principal="User:eve")
    assert answer.error_code == Errors.DELEGATION_TOKEN_OWNER_MISMATCH
    assert ask(tokens, ApiKey.RENEW_DELEGATION_TOKEN, renewing).error_code == 0


def test_only_users_own_tokens(tokens: DelegationTokens) -> None:
    """A token of Group:alice would log User:alice in."""
    access = allowing((*CREATE[:2], "Group:alice"))
    fields = {**new("alice"), "owner_principal_type": "Group"}
    refused = ask(tokens, ApiKey.CREATE_DELEGATION_TOKEN, fields, access=access)
    assert refused.error_code == Errors.INVALID_PRINCIPAL_TYPE
    assert tokens.all() == ()


def test_tokens_of_others_are_described_to_whom_may_describe_them_or_their_owners(
    tokens: DelegationTokens,
) -> None:
    made = ask(
        tokens, ApiKey.CREATE_DELEGATION_TOKEN, new("alice"), access=allowing(CREATE), principal="User:eve"
    )
    mine = tokens.create("User:carol", (), 0)

    def seen(principal: str, *rights: Right, owners: Any = None) -> list[str]:
        fields = {"owners": owners}
        access = allowing(*rights)
        answer = ask(tokens, ApiKey.DESCRIBE_DELEGATION_TOKEN, fields, access=access, principal=principal)
        return sorted(token.token_id for token in answer.tokens)

    one, both = [made.token_id], sorted([made.token_id, mine.token_id])
    assert [seen(each) for each in (ALICE, BOB, "User:eve", "User:mallory")] == [one, one, one, []]
    of_owner = (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, ALICE)
    of_token = (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id)
    for right in (of_owner, of_token):
        assert seen("User:mallory", right) == one
        assert seen("User:carol", right) == both
        assert seen("User:carol", right, owners=[{"principal_type": "User", "principal_name": "eve"}]) == one
        assert seen("User:carol", right, owners=[]) == []
