"""The GSSAPI mechanism (RFC 4752): Kerberos proves the user. Pure.

The tokens of a security context come first. Then the server offers security layers, and the client chooses.
Like Kafka, only "no layer" is offered: TLS encrypts. `server.kerberos` has the contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from broker.sasl.exchange import LoginFailed, LoginIdentity

MECHANISM: Final = "GSSAPI"
_NO_LAYER: Final = 1
# The layers as bits, and three bytes for the largest wrapped message, which is 0 without a layer.
_ONLY_NO_LAYER: Final = bytes((_NO_LAYER, 0, 0, 0))


class SecurityContext(Protocol):
    """One end of a security context. All methods raise :class:`LoginFailed`."""

    @property
    def is_established(self) -> bool: ...

    def initiator(self) -> str:
        """The principal of the client, with its realm. Only of an established context."""

    def step(self, token: bytes) -> bytes:
        """The token for the peer, empty if there is none. The client's first ``token`` is empty."""

    def wrap(self, message: bytes) -> bytes:
        """A message for the peer, protected from changes."""

    def unwrap(self, token: bytes) -> bytes: ...


class _Step(Enum):
    """What the next token of the client is."""

    CONTEXT = auto()
    ACKNOWLEDGEMENT = auto()
    LAYER = auto()
    NONE = auto()


class GssapiExchange:
    """An authentication by GSSAPI; Java's GssKrb5Server. See :class:`~broker.sasl.exchange.Exchange`.

    ``user_of`` has the user's name for a principal, or raises :class:`LoginFailed`. As in Kafka, the client's
    authorization id is ignored: kafka-python sends the name of the service.
    """

    def __init__(self, context: SecurityContext, user_of: Callable[[str], str]) -> None:
        self.identity: LoginIdentity | None = None
        self.claimed = ""
        self._context = context
        self._user_of = user_of
        self._step = _Step.CONTEXT

    def answer(self, token: bytes) -> bytes:
        if self._step is _Step.CONTEXT:
            return self._go_on(token)
        if self._step is _Step.ACKNOWLEDGEMENT:
            if token:
                raise LoginFailed("a token came where an empty one is expected")
            return self._offer_layer()
        if self._step is _Step.LAYER:
            self._step = _Step.NONE
            return self._end(token)
        raise LoginFailed("a token came after the exchange")

    def _go_on(self, token: bytes) -> bytes:
        if not token:
            raise LoginFailed("the client's first token is empty")
        answer = self._context.step(token)
        if not self._context.is_established:
            return answer
        self.claimed = self._context.initiator()
        if not answer:  # the client did not ask for a proof of the server
            return self._offer_layer()
        self._step = _Step.ACKNOWLEDGEMENT
        return answer

    def _offer_layer(self) -> bytes:
        self._step = _Step.LAYER
        return self._context.wrap(_ONLY_NO_LAYER)

    def _end(self, token: bytes) -> bytes:
        chosen = self._context.unwrap(token)
        if len(chosen) < len(_ONLY_NO_LAYER) or chosen[0] != _NO_LAYER:
            raise LoginFailed("the client asks for a security layer, and there is none")
        self.identity = LoginIdentity(self._user_of(self.claimed))
        return b""


class GssapiTokens:
    """The client's side of GSSAPI; Java's GssKrb5Client. See :class:`~broker.sasl.exchange.Tokens`."""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._is_done = False

    def next(self, challenge: bytes) -> bytes | None:
        if self._is_done:
            return None
        if not self._context.is_established:
            return self._context.step(challenge)  # an empty one acknowledges the last of the server's
        offered = self._context.unwrap(challenge)
        if len(offered) != len(_ONLY_NO_LAYER) or not offered[0] & _NO_LAYER:
            raise LoginFailed("the server insists on a security layer")
        self._is_done = True
        return self._context.wrap(_ONLY_NO_LAYER)
