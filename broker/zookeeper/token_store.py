"""Delegation tokens in ``/delegation_token``: Kafka's znodes, their JSON, and the notifications of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from broker.zookeeper import announcements
from broker.zookeeper.store import NodeExistsError, NoNodeError, Store, Watch
from broker.zookeeper.znodes import STRANGE, BadZnodeError, desanitize, dump, int64, load, sanitize

_log = structlog.get_logger(__name__)
TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
_CHANGE_PREFIX: Final = f"{CHANGES}/token_change_"
_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A delegation token without its secret; Kafka's TokenInformation. Principals are ``User:name``; times are
    of the wall clock.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def is_of(self, principal: str) -> bool:
        """Whether the principal owns it or may renew it."""
        return principal == self.owner or principal in self.renewers

    @property
    def concerned(self) -> tuple[str, ...]:
        """Its owner, its requester and its renewers: they may see it, as by Kafka's ownerOrRenewer."""
        return (self.owner, self.requester, *self.renewers)


def encode_token(token: TokenInfo) -> bytes:
    """The fields in the order in which Kafka writes them."""
    return dump(
        {
            "issueTimestamp": token.issued_ms,
            "renewers": [sanitize(renewer) for renewer in token.renewers],
            "tokenRequester": sanitize(token.requester),
            "tokenId": token.token_id,
            "owner": sanitize(token.owner),
            "expiryTimestamp": token.expires_ms,
            "maxTimestamp": token.max_ms,
            "version": _VERSION,
        }
    )


def decode_token(path: str, data: bytes) -> TokenInfo:
    """Versions 1 to 3; before 3, the owner requested it. Raises BadZnodeError."""
    value = load(path, data)
    try:
        if not 1 <= int(value["version"]) <= _VERSION:
            raise ValueError(f"version {value['version']}")
        owner = desanitize(str(value["owner"]))
        return TokenInfo(
            str(value["tokenId"]),
            owner,
            desanitize(str(value.get("tokenRequester") or sanitize(owner))),
            tuple(desanitize(str(renewer)) for renewer in value["renewers"]),
            int64(value["issueTimestamp"]),
            int64(value["maxTimestamp"]),
            int64(value["expiryTimestamp"]),
        )
    except STRANGE as error:
        raise BadZnodeError(f"{path} holds no delegation token ({error})") from error


class TokenStore:
    """The tokens in the store. Thread-safe, without state of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create_paths(self) -> None:
        for path in (TOKENS, CHANGES):
            self._store.ensure_path(path)

    def token_ids(self) -> list[str]:
        return self._store.children(TOKENS)

    def tokens(self, token_ids: list[str]) -> dict[str, TokenInfo]:
        """Those of the tokens that exist. An unreadable one is left out."""
        paths = [f"{TOKENS}/{token_id}" for token_id in token_ids]
        found = {}
        for token_id, path, node in zip(token_ids, paths, self._store.get_many(paths), strict=True):
            if node is None or not node[0]:
                continue
            try:
                found[token_id] = decode_token(path, node[0])
            except BadZnodeError as error:
                _log.error(
                    "znode_unreadable", reason=str(error), action="it is left out: mend it or delete it"
                )
        return found

    def put(self, token: TokenInfo) -> None:
        """Creates or replaces a token, and announces it."""
        path, data = f"{TOKENS}/{token.token_id}", encode_token(token)
        try:
            self._store.set(path, data)
        except NoNodeError:
            try:
                self._store.create(path, data)
            except NodeExistsError:  # from a first attempt of our own
                self._store.set(path, data)
        self._announce(token.token_id)

    def delete(self, token_id: str) -> None:
        try:
            self._store.delete(f"{TOKENS}/{token_id}")
        except NoNodeError:
            return  # another broker was first, and has announced it
        self._announce(token_id)

    def changes(self, after: str) -> list[tuple[str, str]]:
        """``(notification name, token id)`` of the announcements after ``after``, oldest first."""
        names = [name for name in sorted(self._store.children(CHANGES)) if name > after]
        found = self._store.get_many([f"{CHANGES}/{name}" for name in names])
        return [
            (name, node[0].decode(errors="replace"))
            for name, node in zip(names, found, strict=True)
            if node is not None
        ]

    def purge_changes(self, now_ms: int) -> None:
        """Deletes announcements that every broker has seen by now."""
        announcements.purge(self._store, CHANGES, now_ms - announcements.KEPT_MS)

    def watch_changes(self, callback: Callable[[], None]) -> Watch:
        return self._store.watch_children(CHANGES, callback)

    def _announce(self, token_id: str) -> None:
        self._store.create(_CHANGE_PREFIX, token_id.encode(), sequence=True)
