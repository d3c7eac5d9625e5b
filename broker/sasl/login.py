"""What a connection may do before its client is authenticated, and what authentication does. Pure.

Kafka's SaslServerAuthenticator. :meth:`Login.receive` gets every frame and says what happens: it is a request
to serve, or it is answered here. Clients of SaslHandshake v1 send their tokens in SaslAuthenticate; those of
v0 send them bare. A client that is authenticated may begin again (KIP-368) and must when its session expires.
GSSAPI tokens without a handshake, as Kafka 0.9.0 took them, are refused. `network.sasl` sends and
delays what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.framing import RequestHeader, parse_request_header, response_prefix
from broker.protocol.primitives import INT32
from broker.sasl.exchange import Exchange, LoginFailed, LoginIdentity, Mechanisms

_HANDSHAKE_BYTES: Final = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
# A client cannot re-authenticate more often, as in Kafka.
_PAUSE_NS: Final = 1_000_000_000


class LoginState(Enum):
    """The state of a connection's authentication."""

    HANDSHAKE = "waits for ApiVersions or SaslHandshake"
    AUTHENTICATE = "waits for SaslAuthenticate"
    AUTHENTICATE_BARE = "waits for a token without a header"
    OTHER_MECHANISM = (
        "re-authenticates by another mechanism than before: waits for SaslAuthenticate, to refuse it"
    )
    OTHER_MECHANISM_BARE = "the same: waits for a token without a header"
    DONE = "authenticated"
    FAILED = "to be closed"


class Kind(Enum):
    """What a frame is to the authentication."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    OTHER = auto()
    TOKEN = auto()


class Action(Enum):
    """What is done with a frame."""

    SERVE = "it is a request to serve"
    SHAKE_HANDS = "the client chooses a mechanism"
    EVALUATE = "it has a token of the mechanism"
    REFUSE_OTHER = "another mechanism than before fails"
    UNEXPECTED = "the connection is to be closed"


_KINDS: Final[Mapping[int, Kind]] = {
    ApiKey.API_VERSIONS: Kind.VERSIONS,
    ApiKey.SASL_HANDSHAKE: Kind.HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE: Kind.AUTHENTICATE,
}
_BARE: Final = frozenset({LoginState.AUTHENTICATE_BARE, LoginState.OTHER_MECHANISM_BARE})
#: What is not here is unexpected.
ACTIONS: Final[Mapping[tuple[LoginState, Kind], Action]] = {
    (LoginState.HANDSHAKE, Kind.VERSIONS): Action.SERVE,
    (LoginState.HANDSHAKE, Kind.HANDSHAKE): Action.SHAKE_HANDS,
    (LoginState.AUTHENTICATE, Kind.AUTHENTICATE): Action.EVALUATE,
    (LoginState.AUTHENTICATE_BARE, Kind.TOKEN): Action.EVALUATE,
    (LoginState.OTHER_MECHANISM, Kind.AUTHENTICATE): Action.REFUSE_OTHER,
    (LoginState.OTHER_MECHANISM_BARE, Kind.TOKEN): Action.REFUSE_OTHER,
}


class LoginReply(NamedTuple):
    """The answer to a frame that is part of the authentication. ``payload`` is a complete frame; None: there is
    no answer. ``failure``: the connection is to be closed afterwards.
    """

    api_key: int
    payload: bytes | None = None
    failure: LoginFailed | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A listener's mechanisms, how long its sessions last (0: unlimited) by mechanism, and the largest frame
    before the authentication.
    """

    mechanisms: Mechanisms
    max_session_ms: Mapping[str, int] = field(default_factory=dict)
    max_receive_bytes: int = 524_288


class Login:
    """The authentication of one connection; Kafka's SaslServerAuthenticator. Its Processor's thread owns it.

    ``identity`` is the proved user; None before. ``expires_ns`` is when the session expires; 0: never.
    ``wall_ms`` is the wall clock, for credentials that expire. All other times are of the monotonic clock.
    """

    def __init__(self, offer: Offer, wall_ms: Callable[[], int]) -> None:
        self.state = LoginState.HANDSHAKE
        self.mechanism = ""
        self.identity: LoginIdentity | None = None
        self._offer = offer
        self._wall_ms = wall_ms
        self._exchange: Exchange | None = None
        self._began_ns = 0
        self.expires_ns = 0

    @property
    def is_done(self) -> bool:
        return self.state is LoginState.DONE

    @property
    def is_again(self) -> bool:
        """Whether the client was authenticated before."""
        return self.identity is not None

    @property
    def claimed(self) -> str:
        """The user name that the client gave in the current authentication."""
        return self._exchange.claimed if self._exchange else ""

    def receive(self, frame: memoryview, now_ns: int) -> LoginReply | None:
        """The reply to a frame; None if it is a request to serve. Raises :class:`ProtocolError` for one that is
        no request, and for any request once the session has expired: the connection is to be closed. Raises
        :class:`~broker.sasl.apart.AskLater` if the same frame is to be given again later.
        """
        if self.state is LoginState.DONE:
            if frame[:2] != _HANDSHAKE_BYTES or now_ns - self._began_ns < _PAUSE_NS:
                if self.expires_ns and now_ns > self.expires_ns:
                    raise ProtocolError("its session expired (connections.max.reauth.ms, or its credential)")
                return None
            self.state = LoginState.HANDSHAKE
        if self.state in _BARE:
            if ACTIONS[self.state, Kind.TOKEN] is Action.EVALUATE:
                return self._authenticate_bare(frame, now_ns)
            return self._refuse_other(None)
        header = parse_request_header(frame)
        body = frame[header.body_offset :]
        action = ACTIONS.get((self.state, _KINDS.get(header.api_key, Kind.OTHER)), Action.UNEXPECTED)
        if action is Action.SHAKE_HANDS:
            return self._shake_hands(header, body, now_ns)
        if action is Action.EVALUATE:
            return self._authenticate(header, body, now_ns)
        if action is Action.REFUSE_OTHER:
            return self._refuse_other(header)
        return None if action is Action.SERVE else self._unexpected(header)

    def _shake_hands(self, header: RequestHeader, body: memoryview, now_ns: int) -> LoginReply:
        _check_version(header)
        request = codec.decode(header.api_key, header.api_version, "request", body)
        again, wanted = self.is_again, str(request.mechanism)
        bare = header.api_version == 0
        failure = None
        if wanted not in self._offer.mechanisms:
            failure = LoginFailed(f"mechanism {wanted[:64]!r} is not enabled")
            self.state = LoginState.FAILED
        elif again and wanted != self.mechanism:
            self.state = LoginState.OTHER_MECHANISM_BARE if bare else LoginState.OTHER_MECHANISM
        else:
            self.mechanism = wanted
            self._exchange = self._offer.mechanisms[wanted]()
            self._began_ns = now_ns
            self.state = LoginState.AUTHENTICATE_BARE if bare else LoginState.AUTHENTICATE
        error = Errors.UNSUPPORTED_SASL_MECHANISM if failure else Errors.NONE
        fields = {"error_code": error, "mechanisms": list(self._offer.mechanisms)}
        return LoginReply(header.api_key, _encoded(header, fields), failure)

    def _authenticate(self, header: RequestHeader, body: memoryview, now_ns: int) -> LoginReply:
        _check_version(header)
        request = codec.decode(header.api_key, header.api_version, "request", body)
        try:
            token, lifetime_ms = self._evaluate(bytes(request.auth_bytes), now_ns)
        except LoginFailed as failure:
            return self._refused(header, failure)
        fields = {
            "error_code": Errors.NONE,
            "error_message": "",
            "auth_bytes": token,
            "session_lifetime": lifetime_ms,
        }
        return LoginReply(header.api_key, _encoded(header, fields))

    def _authenticate_bare(self, frame: memoryview, now_ns: int) -> LoginReply:
        try:
            token, _ = self._evaluate(bytes(frame), now_ns)
        except LoginFailed as failure:
            self.state = LoginState.FAILED
            return LoginReply(ApiKey.SASL_AUTHENTICATE, None, failure)
        return LoginReply(ApiKey.SASL_AUTHENTICATE, INT32.pack(len(token)) + token)

    def _refuse_other(self, header: RequestHeader | None) -> LoginReply:
        failure = LoginFailed(
            "another mechanism for the re-authentication",
            f"Re-authentication must use the mechanism of the authentication, {self.mechanism}",
        )
        if header is not None:
            _check_version(header)
            return self._refused(header, failure)
        self.state = LoginState.FAILED
        return LoginReply(ApiKey.SASL_AUTHENTICATE, None, failure)

    def _refused(self, header: RequestHeader, failure: LoginFailed) -> LoginReply:
        what = "re-authentication" if self.is_again else "authentication"
        general = f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self.mechanism}"
        self.state = LoginState.FAILED
        fields = {
            "error_code": Errors.SASL_AUTHENTICATION_FAILED,
            "error_message": failure.told or general,
            "auth_bytes": b"",
        }
        return LoginReply(header.api_key, _encoded(header, fields), failure)

    def _unexpected(self, header: RequestHeader) -> LoginReply:
        """Any other request. It is answered only after a handshake, as by Kafka."""
        api = APIS[header.api_key]
        failure = LoginFailed(f"{api.name} was sent instead of an authentication")
        body = None
        if (
            self.state is not LoginState.HANDSHAKE
            and api.min_version <= header.api_version <= api.max_version
        ):
            body = codec.encode_error(header.api_key, header.api_version, Errors.ILLEGAL_SASL_STATE)
        self.state = LoginState.FAILED
        payload = None if body is None else _framed(header, body)
        return LoginReply(header.api_key, payload, failure)

    def _evaluate(self, token: bytes, now_ns: int) -> tuple[bytes, int]:
        """The answer to a token, and the session's lifetime in ms (0: unlimited, or not complete yet)."""
        exchange = self._exchange
        assert exchange is not None
        answer = exchange.answer(token)
        identity = exchange.identity
        if identity is None:
            return answer, 0
        before = self.identity
        if before is not None and (before.name, before.by_token) != (identity.name, identity.by_token):
            raise LoginFailed(
                f"another user, {identity.name[:64]!r}, for the re-authentication of {before.name!r}",
                "Cannot change principals during re-authentication",
            )
        lifetime_ms = self._lifetime_ms(identity)
        self.expires_ns = 0 if lifetime_ms is None else now_ns + lifetime_ms * 1_000_000
        self.identity = identity
        self.state = LoginState.DONE
        self._exchange = None  # a security context of GSSAPI takes 11 KiB
        return answer, lifetime_ms or 0

    def _lifetime_ms(self, identity: LoginIdentity) -> int | None:
        limits = []
        longest_ms = self._offer.max_session_ms.get(self.mechanism, 0)
        if longest_ms > 0:
            limits.append(longest_ms)
        if identity.expires_ms is not None:
            limits.append(identity.expires_ms - self._wall_ms())
        return max(min(limits), 0) if limits else None


def _check_version(header: RequestHeader) -> None:
    api = APIS[header.api_key]
    if not api.min_version <= header.api_version <= api.max_version:
        raise ProtocolError(f"{api.name} version {header.api_version} is not supported")


def _encoded(header: RequestHeader, fields: Mapping[str, object]) -> bytes:
    return _framed(header, codec.encode(header.api_key, header.api_version, "response", dict(fields)))


def _framed(header: RequestHeader, body: bytes) -> bytes:
    return response_prefix(header.api_key, header.api_version, header.correlation_id, len(body)) + body
