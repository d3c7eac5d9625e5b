"""What protects the HTTP port: TLS, and the token that requests need. Without configuration neither does anything.

:mod:`broker.tls.http` and ``hmac`` are loaded only if they are needed.
"""

from __future__ import annotations

import socket
from base64 import b64decode
from typing import Final

import structlog

from broker.config.broker_config import BrokerConfig
from broker.config.http_keys import HEALTH_TOO, TOKEN_FILE
from broker.config.problems import ConfigError
from broker.config.token_file import Stamp, read_tokens, stamp_of
from broker.server.tls import Wrap
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_NEVER: Final[Stamp] = (-1, -1, -1)
HEALTH: Final = frozenset({"/livez", "/readyz"})


class TokenGuard:
    """Decides which requests have a good token. From any thread. A changed file is read by the next request;
    one that cannot be used leaves the tokens as they were. Raises ConfigError.
    """

    def __init__(self, path: str, *, health_too: bool) -> None:
        self._path = path
        self._open = frozenset() if health_too else HEALTH
        self._tokens = read_tokens(path)
        self._failed: Stamp | None = _NEVER

    def admits(self, path: str, authorization: str | None, address: str) -> bool:
        """Whether a request for ``path`` may be answered. A refusal is logged, without what was sent."""
        if path in self._open:
            return True
        if self._is_known(_token_in(authorization or "")):
            return True
        reason = f"its token is not in {TOKEN_FILE}" if authorization else "it has no token"
        log_refusal("http_request_refused", address, reason, path=path[:100])
        return False

    def _is_known(self, sent: bytes) -> bool:
        from hmac import compare_digest

        self._look()
        known = False
        for token in self._tokens.values:  # all of them, so that the time tells nothing
            known |= compare_digest(token, sent)
        return known

    def _look(self) -> None:
        stamp = stamp_of(self._path)
        if stamp in (self._tokens.stamp, self._failed):
            return
        try:
            self._tokens = read_tokens(self._path)
        except ConfigError as error:
            self._failed = stamp
            _log.error(
                "http_tokens_reload_failed",
                reason=error.problems[0].message,
                action="the tokens from before are taken",
            )
        else:
            _log.info("http_tokens_reloaded", count=len(self._tokens.values))


def _token_in(authorization: str) -> bytes:
    """The token that the header has: as a bearer, or as a browser's password for any user. Empty if there is none."""
    scheme, _, sent = authorization.partition(" ")
    value = sent.strip().encode("latin-1", "replace")
    if scheme.lower() == "bearer":
        return value
    if scheme.lower() != "basic":
        return b""
    try:
        return b64decode(value, validate=True).partition(b":")[2]
    except ValueError:
        return b""


class HttpSecurity:
    """The protection of one HTTP port. ``wrap`` makes the server's end of a TLS connection, before its
    handshake; None without TLS. ``guard`` is None without a token.
    """

    def __init__(self, wrap: Wrap | None = None, guard: TokenGuard | None = None) -> None:
        self._wrap = wrap
        self._guard = guard
        self.scheme = "http" if wrap is None else "https"

    @classmethod
    def of(cls, config: BrokerConfig, wrap: Wrap | None) -> HttpSecurity:
        """Raises ConfigError for a file of tokens that cannot be used."""
        path = config.opt_str(TOKEN_FILE)
        guard = None if path is None else TokenGuard(path, health_too=config.bool(HEALTH_TOO))
        return cls(wrap, guard)

    def wrapped(self, sock: socket.socket) -> socket.socket:
        """An accepted connection as it is used from here on. Raises OSError, and then ``sock`` is closed."""
        return sock if self._wrap is None else self._wrap(sock)

    def shake_hands(self, sock: socket.socket, timeout_s: float) -> None:
        """Blocks until a connection is secure. Raises OSError, also after ``timeout_s``."""
        if self._wrap is not None:
            from broker.tls.http import shake_hands

            shake_hands(sock, timeout_s)

    def admits(self, path: str, authorization: str | None, address: str) -> bool:
        """Whether a request may be answered."""
        return self._guard is None or self._guard.admits(path, authorization, address)


NO_SECURITY: Final = HttpSecurity()
