"""The client's side of SASL, for connections between brokers: PLAIN, SCRAM and GSSAPI.

:func:`log_in` sends SaslHandshake and SaslAuthenticate by a function of its caller's, and knows no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.sasl.exchange import LoginFailed, Tokens

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
Ask = Callable[[int, int, Fields], Any]


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """By what and as whom a broker logs in to others. ``tokens`` makes the client's side for a host, if the
    mechanism is none of those with passwords.
    """

    mechanism: str
    user: str
    password: str
    tokens: Callable[[str], Tokens] | None = None

    def __repr__(self) -> str:
        return f"<ClientLogin {self.user} by {self.mechanism}>"


def log_in(login: ClientLogin, ask: Ask, host: str = "") -> int:
    """Authenticates to the broker on ``host``, and returns the session's lifetime in ms, 0 if it is unlimited. Raises
    :class:`LoginFailed`, and what ``ask`` raises.
    """
    answer = ask(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, {"mechanism": login.mechanism})
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise LoginFailed(f"{login.mechanism} is refused ({_name(answer.error_code)}); it offers {offered}")
    tokens = _tokens(login) if login.tokens is None else login.tokens(host)
    challenge, lifetime_ms = b"", 0
    while (token := tokens.next(challenge)) is not None:
        answer = ask(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, {"auth_bytes": token})
        if answer.error_code:
            raise LoginFailed(f"{_name(answer.error_code)} for {login.user}: {answer.error_message}")
        challenge = answer.auth_bytes
        lifetime_ms = int(answer.session_lifetime.total_seconds() * 1000)
    return lifetime_ms


def _tokens(login: ClientLogin) -> Tokens:
    """The client's side of the mechanism. Imported late: most brokers need no hashes."""
    if login.mechanism == "PLAIN":
        from broker.sasl.plain import PlainTokens

        return PlainTokens(login.user, login.password)
    from broker.sasl.scram_client import ScramTokens

    return ScramTokens(login.mechanism, login.user, login.password)


def _name(code: int) -> str:
    return Errors(int(code)).name
