"""GSSAPI's tokens after those of the security context: what is offered, what is taken, and from whom."""

from __future__ import annotations

import pytest

from broker.sasl.exchange import LoginFailed
from broker.sasl.gssapi_exchange import GssapiExchange, GssapiTokens

NO_LAYER = b"\x01\0\0\0"


class Context:
    """A security context without cryptography: ``says`` are its tokens, and the last one establishes it."""

    def __init__(self, *says: bytes) -> None:
        self._says = list(says)

    @property
    def is_established(self) -> bool:
        return not self._says

    def initiator(self) -> str:
        return "alice@EXAMPLE.COM"

    def step(self, token: bytes) -> bytes:
        if token == b"forged":
            raise LoginFailed("no key")
        return self._says.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"wrapped "):
            raise LoginFailed("a wrong signature")
        return token.removeprefix(b"wrapped ")


def exchange(*says: bytes) -> GssapiExchange:
    return GssapiExchange(Context(*says), lambda principal: principal.partition("@")[0])


def test_a_client_that_wants_a_proof_of_the_server_acknowledges_it() -> None:
    server = exchange(b"more", b"proof")
    assert [server.answer(token) for token in (b"one", b"two", b"")] == [
        b"more",
        b"proof",
        b"wrapped " + NO_LAYER,
    ]
    assert (server.identity, server.claimed) == (None, "alice@EXAMPLE.COM")
    assert server.answer(b"wrapped " + NO_LAYER) == b""
    assert server.identity is not None
    assert server.identity.name == "alice"


def test_a_client_that_wants_none_is_offered_the_layers_at_once() -> None:
    assert exchange(b"").answer(b"one") == b"wrapped " + NO_LAYER


def test_the_authorization_id_is_ignored_as_by_kafka() -> None:
    server = exchange(b"")
    server.answer(b"one")
    server.answer(b"wrapped \x01\0\0\0kafka@localhost")
    assert server.identity is not None
    assert server.identity.name == "alice"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([b""], "first token is empty"),
        ([b"forged"], "no key"),
        ([b"one", b"more"], "an empty one is expected"),
        ([b"one", b"", b"\x01\0\0\0"], "wrong signature"),
        ([b"one", b"", b"wrapped \x04\0\0\0"], "asks for a security layer"),
        ([b"one", b"", b"wrapped \x05\0\0\0"], "asks for a security layer"),
        ([b"one", b"", b"wrapped \x01\0\0"], "asks for a security layer"),
        ([b"one", b"", b"wrapped \x01\0\0\0", b""], "after the exchange"),
        ([b"one", b"", b"wrapped \x04\0\0\0", b"wrapped \x01\0\0\0"], "after the exchange"),
    ],
)
def test_any_other_token_fails(sent: list[bytes], reason: str) -> None:
    server = exchange(b"proof")
    said = ""
    for token in sent:
        try:
            server.answer(token)
        except LoginFailed as failure:
            said = str(failure)
    assert reason in said


def test_a_principal_without_a_user_fails() -> None:
    def user_of(principal: str) -> str:
        raise LoginFailed(f"no rule for {principal}")

    server = GssapiExchange(Context(b""), user_of)
    server.answer(b"one")
    with pytest.raises(LoginFailed, match="no rule for alice"):
        server.answer(b"wrapped " + NO_LAYER)
    assert server.identity is None


@pytest.mark.parametrize("proof", [b"proof", b""])
def test_client_and_server_understand_each_other(proof: bytes) -> None:
    client = GssapiTokens(Context(b"ticket", b"") if proof else Context(b"ticket"))
    server = exchange(proof)
    challenge = b""
    while (token := client.next(challenge)) is not None:
        challenge = server.answer(token)
    assert server.identity is not None


@pytest.mark.parametrize("offer", [b"wrapped \x06\0\0\0", b"wrapped \x01\0\0", b"wrapped "])
def test_a_client_takes_no_security_layer(offer: bytes) -> None:
    client = GssapiTokens(Context(b"ticket"))
    client.next(b"")
    with pytest.raises(LoginFailed, match="insists on a security layer"):
        client.next(offer)
