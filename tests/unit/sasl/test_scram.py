"""SCRAM: the RFCs' examples, scramp on either side, and what is wrong with everything else."""

from __future__ import annotations

import base64

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.sasl.credential import Known, ScramCredential
from broker.sasl.exchange import LoginFailed, LoginIdentity
from broker.sasl.scram import ALGORITHMS, ScramExchange, new_credential
from broker.sasl.scram_client import ScramTokens
from tests.support.sasl_frames import DECOYS

SALT = b"0123456789abcdef"
CREDENTIAL = {name: new_credential(name, "pencil", 4096, SALT) for name in ALGORITHMS}
# RFC 7677, section 3.
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = (
    f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(mechanism: str, *users: str, nonce: str = "") -> ScramExchange:
    known = {user: Known(CREDENTIAL[mechanism], user) for user in users}
    return ScramExchange(mechanism, lambda user, _by_token: known.get(user), DECOYS, nonce)


def converse(exchange: ScramExchange, client: ScramTokens) -> None:
    challenge = b""
    while (token := client.next(challenge)) is not None:
        challenge = exchange.answer(token)


def test_the_servers_side_of_rfc_7677s_example() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = new_credential("SCRAM-SHA-256", "pencil", 4096, salt)
    exchange = ScramExchange("SCRAM-SHA-256", lambda user, _: Known(credential, user), DECOYS, SERVER_NONCE)
    assert exchange.answer(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.answer(CLIENT_FINAL) == SERVER_FINAL
    assert exchange.identity == LoginIdentity("user")


def test_the_clients_side_of_rfc_7677s_example() -> None:
    client = ScramTokens("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    assert client.next(b"") == CLIENT_FIRST
    assert client.next(SERVER_FIRST) == CLIENT_FINAL
    assert client.next(SERVER_FINAL) is None


@pytest.mark.parametrize("mechanism", ALGORITHMS)
def test_our_client_logs_in_to_our_server(mechanism: str) -> None:
    exchange = server(mechanism, "a=b,c")
    converse(exchange, ScramTokens(mechanism, "a=b,c", "pencil"))
    assert exchange.identity == LoginIdentity("a=b,c")


@pytest.mark.parametrize("mechanism", ALGORITHMS)
def test_scramps_client_logs_in_to_our_server(mechanism: str) -> None:
    exchange = server(mechanism, "alice")
    client = scramp.ScramClient([mechanism], "alice", "pencil")
    client.set_server_first(exchange.answer(client.get_client_first().encode()).decode())
    client.set_server_final(exchange.answer(client.get_client_final().encode()).decode())
    assert exchange.identity == LoginIdentity("alice")


@pytest.mark.parametrize("mechanism", ALGORITHMS)
def test_our_client_logs_in_to_scramps_server(mechanism: str) -> None:
    made = scramp.ScramMechanism(mechanism)
    credential = made.make_auth_info("pencil", salt=SALT, iteration_count=4096)
    assert credential[1:3] == (CREDENTIAL[mechanism].stored_key, CREDENTIAL[mechanism].server_key)
    theirs, client = made.make_server(lambda _user: credential), ScramTokens(mechanism, "alice", "pencil")
    theirs.set_client_first((client.next(b"") or b"").decode())
    theirs.set_client_final((client.next(theirs.get_server_first().encode()) or b"").decode())
    assert client.next(theirs.get_server_final().encode()) is None


def test_an_unknown_user_fails_where_a_wrong_password_does() -> None:
    for user, password in (("nobody", "pencil"), ("alice", "wrong")):
        exchange = server("SCRAM-SHA-256", "alice")
        client = ScramTokens("SCRAM-SHA-256", user, password)
        final = client.next(exchange.answer(client.next(b"") or b""))
        with pytest.raises(LoginFailed) as failure:
            exchange.answer(final or b"")
        assert failure.value.told is None
        assert exchange.identity is None
        assert exchange.claimed == user


def test_only_tokens_that_are_parsed_in_no_time_are_parsed() -> None:
    exchange = server("SCRAM-SHA-256", "alice")
    first = b"n,,n=alice,r="
    assert exchange.answer(first + b"x" * (16 * 1024 - len(first)))
    with pytest.raises(LoginFailed, match="more than 16384 bytes"):
        exchange.answer(bytes(16 * 1024 + 1))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=alice,r=a b",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=al\xff,r=abc",
    ],
)
def test_a_malformed_first_message_fails(first: bytes) -> None:
    with pytest.raises(LoginFailed):
        server("SCRAM-SHA-256", "alice").answer(first)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b",r=", b",r=x"),
        lambda final: final.partition(b",p=")[0],
        lambda final: final.partition(b",p=")[0] + b",p=",
        lambda final: final + b"AA==",
        lambda final: final[:-3] + b"\xff\xff\xff",
        lambda final: b"",
    ],
)
def test_a_changed_final_message_fails(change) -> None:
    exchange = server("SCRAM-SHA-256", "alice")
    client = ScramTokens("SCRAM-SHA-256", "alice", "pencil")
    final = client.next(exchange.answer(client.next(b"") or b"")) or b""
    with pytest.raises(LoginFailed):
        exchange.answer(change(final))
    assert exchange.identity is None


def test_no_token_is_taken_after_the_end() -> None:
    exchange = server("SCRAM-SHA-256", "alice")
    converse(exchange, ScramTokens("SCRAM-SHA-256", "alice", "pencil"))
    with pytest.raises(LoginFailed):
        exchange.answer(CLIENT_FIRST)


def test_a_tokens_user_is_its_owner() -> None:
    asked = []

    def find(name: str, by_token: bool) -> Known:
        asked.append((name, by_token))
        return Known(CREDENTIAL["SCRAM-SHA-256"], "owner", 99)

    for extension, by_token in (
        (",tokenauth=true", True),
        (",tokenauth=truer", False),
        (",x=tokenauth", False),
    ):
        ScramExchange("SCRAM-SHA-256", find, DECOYS).answer(f"n,,n=id,r=abc{extension}".encode())
        assert asked.pop() == ("id", by_token)


@pytest.mark.parametrize(
    ("challenge", "what"),
    [(b"r=other,s=AAAA,i=4096", "first answer"), (b"e=other-error", "first answer"), (b"\xff", "not SCRAM")],
)
def test_the_client_refuses_a_wrong_first_answer(challenge: bytes, what: str) -> None:
    client = ScramTokens("SCRAM-SHA-256", "alice", "pencil")
    client.next(b"")
    with pytest.raises(LoginFailed, match=what):
        client.next(challenge)


def test_the_client_refuses_few_iterations_and_a_server_without_the_password() -> None:
    client = ScramTokens("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    client.next(b"")
    with pytest.raises(LoginFailed, match="1 iterations only"):
        client.next(SERVER_FIRST.replace(b"i=4096", b"i=1"))
    client = ScramTokens("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    client.next(b"")
    client.next(SERVER_FIRST)
    with pytest.raises(LoginFailed, match="does not know the password"):
        client.next(b"v=AAAA")


def test_a_credential_is_read_back_from_its_text() -> None:
    credential = CREDENTIAL["SCRAM-SHA-512"]
    assert ScramCredential.parse(str(credential)) == credential
    assert "stored" not in repr(credential)


@pytest.mark.parametrize(
    "text", ["", "salt=AA==", "salt=%,stored_key=AA==,server_key=AA==,iterations=1", "SECRET"]
)
def test_a_text_that_is_no_credential_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="credential") as refusal:
        ScramCredential.parse(text)
    assert not text or text not in str(refusal.value)


@given(st.lists(st.binary(max_size=80) | st.text("n,=r acsyp").map(str.encode), min_size=1, max_size=3))
@settings(max_examples=300)
def test_any_bytes_are_answered_or_fail(tokens: list[bytes]) -> None:
    exchange = server("SCRAM-SHA-256", "a", "n")
    for token in tokens:
        try:
            assert exchange.answer(token).startswith(b"r=")
        except LoginFailed:
            break
    assert exchange.identity is None
