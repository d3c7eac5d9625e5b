"""Delegation tokens (KIP-48): made, renewed and ended on any broker, kept in the store, and known to all.

A token's secret is the HMAC of its id with ``delegation.token.secret.key``, so every broker can compute it, and
it is never stored. Clients log in with id and secret by SCRAM. The controller removes expired tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from broker.protocol.errors import Errors, KafkaError
from broker.sasl.credential import Known, ScramCredential, to_base64
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.zookeeper.change_follower import ChangeFollower
from broker.zookeeper.store import SessionEvent, StoreError, Watch
from broker.zookeeper.token_store import TokenInfo, TokenStore
from broker.zookeeper.znodes import encode_uuid, random_uuid

_log = structlog.get_logger(__name__)
_MOST_OF_OWNER: Final = 1_000
_MOST_RENEWERS: Final = 4 * 1024  # letters of their names; the znode may have six bytes for each


class DelegationTokens:
    """The cluster's delegation tokens; Kafka's DelegationTokenManagerZk. Requests and changes take its lock;
    look-ups take none.

    ``renew_ms`` is how long a token is valid without renewal, ``max_ms`` its longest lifetime.
    """

    def __init__(self, store: TokenStore, secret: str, clock: Clock, *, renew_ms: int, max_ms: int) -> None:
        self._store = store
        self._secret = secret.encode()
        self._clock = clock
        self._renew_ms = renew_ms
        self._max_ms = max_ms
        self._tokens: dict[str, TokenInfo] = {}
        self._by_secret: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._last_change = ""
        self._may_have_missed = False
        self._watch: Watch | None = None
        self._follower = ChangeFollower(
            "delegation-token-changes",
            self._follow,
            unread="delegation_tokens_unread",
            failed="delegation_tokens_failed",
        )
        self._lock = threading.Lock()  # lock order 11

    def startup(self, scheduler: KafkaScheduler, check_ms: int, is_controller: Callable[[], bool]) -> None:
        """Reads all tokens, then follows changes. Raises StoreError."""
        self._store.create_paths()
        self._watch = self._store.watch_changes(self._follower.wake)
        with self._lock:
            for token in self._store.tokens(self._store.token_ids()).values():
                self._know(token)
        self._follower.start()

        def check() -> None:
            if is_controller():
                self.remove_expired()

        scheduler.schedule("delete-expired-tokens", check, check_ms, check_ms)

    def on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            # Others remove announcements after a while: some may have come and gone meanwhile.
            self._may_have_missed = True
        elif event is SessionEvent.CONNECTED:
            self._follower.wake()

    def shutdown(self) -> None:
        """Stops following changes; idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._follower.close()

    def find(self, mechanism: str, token_id: str) -> Known | None:
        """The SCRAM credential of a token that has not expired. Never waits; the first time takes 2 ms."""
        token = self._tokens.get(token_id)
        if token is None or token.is_expired(self._clock.wall_ms()):
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            from broker.sasl.scram import new_credential  # late, as in secret_of

            password = to_base64(self.secret_of(token))
            credential = self._credentials[mechanism, token_id] = new_credential(mechanism, password)
        return Known(credential, token.owner.partition(":")[2], token.expires_ms)

    def secret_of(self, token: TokenInfo) -> bytes:
        """The token's HMAC."""
        import hmac  # late: most brokers need no hashes

        return hmac.digest(self._secret, token.token_id.encode(), "sha512")

    def all(self) -> tuple[TokenInfo, ...]:
        return tuple(self._tokens.values())

    def create(
        self, owner: str, renewers: tuple[str, ...], lifetime_ms: int, requester: str | None = None
    ) -> TokenInfo:
        """A new token of the owner, who is also the requester by default; with a lifetime of 0 or less, it has
        the longest. Raises KafkaError if the owner has too many, and StoreError.
        """
        if sum(len(renewer) for renewer in renewers) > _MOST_RENEWERS:
            raise KafkaError(Errors.INVALID_REQUEST)
        if sum(token.owner == owner for token in self.all()) >= _MOST_OF_OWNER:
            raise KafkaError(Errors.POLICY_VIOLATION)
        now_ms = self._clock.wall_ms()
        max_ms = now_ms + (min(lifetime_ms, self._max_ms) if lifetime_ms > 0 else self._max_ms)
        expires_ms = min(max_ms, now_ms + self._renew_ms)
        token = TokenInfo(
            encode_uuid(random_uuid()), owner, requester or owner, renewers, now_ms, max_ms, expires_ms
        )
        with self._lock:
            self._put(token)
        _log.info("delegation_token_created", token_id=token.token_id, owner=token.owner, by=token.requester)
        return token

    def renew(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Returns the new expiry time. A negative period is the default one. Raises KafkaError, StoreError."""
        with self._lock:
            token = self._own(principal, secret)
            now_ms = self._clock.wall_ms()
            self._refuse_expired(token, now_ms)
            expires_ms = min(token.max_ms, now_ms + (self._renew_ms if period_ms < 0 else period_ms))
            self._put(replace(token, expires_ms=expires_ms))
        _log.info("delegation_token_renewed", token_id=token.token_id, by=principal)
        return expires_ms

    def expire(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Returns the new expiry time. A negative period ends the token now. Raises KafkaError, StoreError."""
        with self._lock:
            token = self._own(principal, secret)
            now_ms = self._clock.wall_ms()
            if period_ms < 0:
                self._remove(token.token_id)
                expires_ms = now_ms
            else:
                self._refuse_expired(token, now_ms)
                expires_ms = min(token.max_ms, now_ms + period_ms)
                self._put(replace(token, expires_ms=expires_ms))
        _log.info("delegation_token_expires", token_id=token.token_id, by=principal)
        return expires_ms

    def remove_expired(self) -> None:
        """Removes the tokens that have expired."""
        now_ms = self._clock.wall_ms()
        with self._lock:
            for token in [token for token in self._tokens.values() if token.is_expired(now_ms)]:
                try:
                    self._remove(token.token_id)
                except StoreError as error:
                    _log.warning("delegation_token_unremoved", token_id=token.token_id, error=str(error))
                    return
                _log.info("delegation_token_expired", token_id=token.token_id, owner=token.owner)

    def _own(self, principal: str, secret: bytes) -> TokenInfo:
        """The token of this secret, if the principal may change it."""
        token = self._tokens.get(self._by_secret.get(secret, ""))
        if token is None:
            raise KafkaError(Errors.DELEGATION_TOKEN_NOT_FOUND)
        if not token.is_of(principal):
            raise KafkaError(Errors.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _refuse_expired(self, token: TokenInfo, now_ms: int) -> None:
        if token.is_expired(now_ms):
            raise KafkaError(Errors.DELEGATION_TOKEN_EXPIRED)

    def _put(self, token: TokenInfo) -> None:
        self._store.put(token)
        self._know(token)

    def _know(self, token: TokenInfo) -> None:
        self._tokens[token.token_id] = token
        self._by_secret[self.secret_of(token)] = token.token_id

    def _remove(self, token_id: str) -> None:
        self._store.delete(token_id)
        self._forget(token_id)

    def _forget(self, token_id: str) -> None:
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._by_secret.pop(self.secret_of(token), None)
        for mechanism, known in tuple(self._credentials):
            if known == token_id:
                self._credentials.pop((mechanism, known), None)

    def _follow(self) -> None:
        """Takes up what was announced since the last time."""
        missed, self._may_have_missed = self._may_have_missed, False
        try:
            self._take_up(missed)
        except Exception:
            self._may_have_missed = True  # that it was may be what was not read
            raise
        self._store.purge_changes(self._clock.wall_ms())

    def _take_up(self, missed: bool) -> None:
        """``missed``: everything is read, announced or not."""
        with self._lock:
            changes = self._store.changes(self._last_change)
            changed = list(dict.fromkeys(token_id for _, token_id in changes))
            if missed:
                changed = list({*self._tokens, *self._store.token_ids()})
            found = self._store.tokens(changed)
            for token_id in changed:
                if token_id in found:
                    self._know(found[token_id])
                else:
                    self._forget(token_id)
            if changes:
                self._last_change = changes[-1][0]
