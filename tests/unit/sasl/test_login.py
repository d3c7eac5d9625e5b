"""The states of a connection's authentication, and what is answered in each."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.sasl.login import ACTIONS, Action, Kind, Login, LoginReply, LoginState, Offer
from broker.sasl.plain import PlainUsers
from broker.sasl.scram_client import ScramTokens
from tests.support.sasl_frames import (
    SCRAM,
    USERS,
    answer,
    authenticate,
    handshake,
    make_offer,
    metadata,
    plain,
    request,
)

SECOND = 1_000_000_000
NOW = 100 * SECOND
VERSIONS = request(ApiKey.API_VERSIONS, 0, {})


def login(max_session_ms: int = 0, wall_ms: int = 0) -> Login:
    return Login(make_offer(max_session_ms), lambda: wall_ms)


def receive(machine: Login, frame: bytes, now_ns: int = NOW) -> LoginReply | None:
    return machine.receive(memoryview(frame)[4:], now_ns)


def reply_of(machine: Login, frame: bytes, now_ns: int = NOW) -> LoginReply:
    reply = receive(machine, frame, now_ns)
    assert reply is not None
    return reply


def logged_in(max_session_ms: int = 0) -> Login:
    machine = login(max_session_ms)
    receive(machine, handshake())
    receive(machine, authenticate(plain()))
    assert machine.is_done
    return machine


def authenticated(reply: LoginReply, version: int = 2):
    assert reply.payload is not None
    return answer(ApiKey.SASL_AUTHENTICATE, version, reply.payload[4:])


def test_versions_then_handshake_then_password() -> None:
    machine = login()
    assert receive(machine, VERSIONS) is None
    shaken = reply_of(machine, handshake())
    assert shaken.payload is not None
    greeting = answer(ApiKey.SASL_HANDSHAKE, 1, shaken.payload[4:])
    assert (greeting.error_code, greeting.mechanisms) == (0, ("PLAIN", SCRAM))
    done = authenticated(reply_of(machine, authenticate(plain())))
    assert (done.error_code, done.auth_bytes, done.session_lifetime.total_seconds()) == (0, b"", 0)
    assert machine.identity is not None
    assert machine.identity.name == "alice"
    assert receive(machine, metadata()) is None


def test_scram_takes_two_rounds() -> None:
    machine, client = login(), ScramTokens(SCRAM, "bob", "bob-secret")
    receive(machine, handshake(SCRAM))
    challenge = b""
    while (token := client.next(challenge)) is not None:
        challenge = authenticated(reply_of(machine, authenticate(token))).auth_bytes
    assert machine.identity is not None
    assert machine.identity.name == "bob"


def test_after_the_old_handshake_tokens_come_and_go_without_headers() -> None:
    machine = login()
    receive(machine, handshake(version=0))
    assert reply_of(machine, b"\0\0\0\0" + plain()).payload == b"\0\0\0\0"
    assert machine.is_done


def test_a_wrong_bare_token_is_not_answered() -> None:
    machine = login()
    receive(machine, handshake(version=0))
    reply = reply_of(machine, b"\0\0\0\0" + plain(password="x"))
    assert reply.payload is None
    assert reply.failure is not None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_password_is_answered_with_kafkas_code_and_no_detail(version: int) -> None:
    machine = login()
    receive(machine, handshake())
    reply = reply_of(machine, authenticate(plain(password="wrong"), version))
    refused = authenticated(reply, version)
    assert refused.error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == "Authentication failed: Invalid username or password"
    assert reply.failure is not None
    assert machine.state is LoginState.FAILED
    assert machine.claimed == "alice"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_right_password_is_answered_in_every_version(version: int) -> None:
    machine = login(max_session_ms=5_000)
    receive(machine, handshake())
    done = authenticated(reply_of(machine, authenticate(plain(), version)), version)
    assert (done.error_code, hasattr(done, "session_lifetime")) == (0, version > 0)


def test_a_failure_of_scram_has_a_general_message() -> None:
    machine = login()
    receive(machine, handshake(SCRAM))
    refused = authenticated(reply_of(machine, authenticate(b"nonsense")))
    assert refused.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_an_exchange_is_released_when_it_is_complete() -> None:
    """A connection lives for days, and keeps what its Login keeps."""
    exchanges = [PlainUsers(USERS).exchange()]
    released = weakref.ref(exchanges[0])
    machine = Login(Offer({"PLAIN": exchanges.pop}), lambda: 0)
    receive(machine, handshake())
    receive(machine, authenticate(plain()))
    assert machine.is_done
    assert released() is None


def test_an_unknown_mechanism_is_answered_with_those_that_there_are() -> None:
    machine = login()
    reply = reply_of(machine, handshake("GSSAPI"))
    assert reply.payload is not None
    greeting = answer(ApiKey.SASL_HANDSHAKE, 1, reply.payload[4:])
    assert (greeting.error_code, greeting.mechanisms) == (Errors.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", SCRAM))
    assert reply.failure is not None


@pytest.mark.parametrize("frame", [metadata(), authenticate(plain())])
def test_other_requests_before_the_handshake_are_not_answered(frame: bytes) -> None:
    reply = reply_of(login(), frame)
    assert reply.payload is None
    assert reply.failure is not None


def test_other_requests_after_the_handshake_are_answered_with_illegal_state() -> None:
    machine = login()
    receive(machine, handshake())
    reply = reply_of(machine, request(ApiKey.LIST_GROUPS, 3, {"states_filter": []}))
    assert reply.payload is not None
    assert answer(ApiKey.LIST_GROUPS, 3, reply.payload[4:]).error_code == Errors.ILLEGAL_SASL_STATE
    assert reply.failure is not None


@pytest.mark.parametrize(
    "frame", [b"\0\0\0\0", b"\0\0\0\0GET / HTTP/1.1", b"\0\0\0\0\x16\x03\x01\x02\x00", b"\0\0\0\0\x60"]
)
def test_what_is_no_request_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        receive(login(), frame)


@pytest.mark.parametrize(("key", "version"), [(ApiKey.SASL_HANDSHAKE, 2), (ApiKey.SASL_HANDSHAKE, -1)])
def test_a_version_that_is_not_spoken_ends_the_connection(key: int, version: int) -> None:
    frame = bytearray(handshake())
    frame[6:8] = version.to_bytes(2, "big", signed=True)
    with pytest.raises(ProtocolError):
        receive(login(), bytes(frame))


def test_a_session_has_a_lifetime_and_is_closed_after_it() -> None:
    machine = login(max_session_ms=5_000)
    receive(machine, handshake())
    done = authenticated(reply_of(machine, authenticate(plain())))
    assert done.session_lifetime.total_seconds() == 5
    assert receive(machine, metadata(), NOW + 5 * SECOND) is None
    with pytest.raises(ProtocolError, match="expired"):
        receive(machine, metadata(), NOW + 6 * SECOND)


def test_a_client_re_authenticates_and_gets_a_new_session() -> None:
    machine = logged_in(max_session_ms=5_000)
    assert reply_of(machine, handshake(), NOW + 6 * SECOND).failure is None
    assert machine.is_again
    assert authenticated(reply_of(machine, authenticate(plain()), NOW + 6 * SECOND)).error_code == 0
    assert receive(machine, metadata(), NOW + 10 * SECOND) is None


def test_a_handshake_less_than_a_second_after_the_last_is_a_request_like_any_other() -> None:
    assert receive(logged_in(), handshake(), NOW + SECOND // 2) is None


def test_nothing_is_served_between_the_handshake_and_the_token_of_a_re_authentication() -> None:
    machine = logged_in()
    receive(machine, handshake(), NOW + 2 * SECOND)
    assert reply_of(machine, metadata(), NOW + 2 * SECOND).failure is not None


def test_a_re_authentication_may_not_change_the_user() -> None:
    machine = logged_in()
    receive(machine, handshake(), NOW + 2 * SECOND)
    refused = authenticated(reply_of(machine, authenticate(plain("bob", "bob-secret")), NOW + 2 * SECOND))
    assert refused.error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert machine.identity is not None
    assert machine.identity.name == "alice"


def test_a_re_authentication_may_not_change_the_mechanism() -> None:
    machine = logged_in()
    assert reply_of(machine, handshake(SCRAM), NOW + 2 * SECOND).failure is None
    reply = reply_of(machine, authenticate(b"n,,n=alice,r=abc"), NOW + 2 * SECOND)
    assert authenticated(reply).error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert machine.state is LoginState.FAILED


def test_the_table_serves_versions_alone_and_ends_nowhere_unknown() -> None:
    assert [pair for pair, action in ACTIONS.items() if action is Action.SERVE] == [
        (LoginState.HANDSHAKE, Kind.VERSIONS)
    ]
    waiting = {state for state, _ in ACTIONS}
    assert waiting == set(LoginState) - {LoginState.DONE, LoginState.FAILED}


def anything() -> st.SearchStrategy[bytes]:
    valid = st.sampled_from(
        [VERSIONS, metadata(), handshake(), handshake(SCRAM), handshake("X"), handshake(version=0)]
    ) | st.sampled_from([plain(), plain(password="x"), b"n,,n=alice,r=abc", b""]).map(authenticate)
    mutated = st.tuples(valid, st.integers(0, 60), st.binary(max_size=4)).map(
        lambda parts: parts[0][: 4 + parts[1]] + parts[2] + parts[0][4 + parts[1] + len(parts[2]) :]
    )
    return valid | mutated | st.binary(max_size=60).map(lambda rest: b"\0\0\0\0" + rest)


class Anything(RuleBasedStateMachine):
    """Whatever a client sends: an answer or a close, and no request is served before its password is right."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = login(max_session_ms=60_000)
        self.now_ns = NOW
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule(frame=anything(), seconds=st.sampled_from([0, 2, 70]))
    def send(self, frame: bytes, seconds: int) -> None:
        self.now_ns += seconds * SECOND
        try:
            reply = receive(self.machine, frame, self.now_ns)
        except ProtocolError:
            self.closed = True
            return
        if reply is None:
            assert self.machine.is_done or frame[4:6] == b"\0\x12"
        elif reply.failure is not None:
            assert self.machine.state is LoginState.FAILED
            self.closed = True
        else:
            assert reply.payload is not None
            if self.machine.is_done:
                assert b"\0alice\0alice-secret" in frame

    @precondition(lambda self: self.closed)
    @rule()
    def connect_again(self) -> None:
        self.machine, self.closed = login(max_session_ms=60_000), False

    @invariant()
    def only_alice_is_let_in(self) -> None:
        if self.machine.identity is not None:
            assert self.machine.identity.name == "alice"


TestAnything: Callable[[], object] = Anything.TestCase
TestAnything.settings = settings(max_examples=150, stateful_step_count=12, deadline=None)  # type: ignore[attr-defined]


@given(st.binary(max_size=100))
def test_any_first_frame_is_answered_or_ends_the_connection(frame: bytes) -> None:
    machine = login()
    try:
        reply = machine.receive(memoryview(frame), NOW)
    except ProtocolError:
        return
    assert reply is None or reply.failure is not None or reply.payload
