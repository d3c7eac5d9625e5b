"""Keeps the signing keys of a JWKS up to date: fetched by URL at the start, then by the scheduler.

``https:``, ``http:`` and ``file:`` URLs. No redirect leads from https to http. A failed fetch is tried again after
``sasl.oauthbearer.jwks.endpoint.retry.backoff.ms``, doubled up to its ``max``; the keys that are known stay. A
token of an unknown key makes the next fetch come sooner, at most once in ten seconds.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

import structlog

from broker.config.sasl import KEY_SCHEMES
from broker.sasl.jwt_tokens import SigningKeys
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.scheduler import KafkaScheduler

_log = structlog.get_logger(__name__)
_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1 << 20
_SOONER_MS: Final = 10_000


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to https, or from http to http: whoever can change what an http URL gives can
    give keys of their own. Java, and so Kafka, follows none to another scheme.
    """

    def redirect_request(  # noqa: PLR0917 - as in its base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in {"https", before}:
            raise ValueError(f"a redirect from {before} to {after} is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str) -> bytes:
    """The content of a URL. Raises OSError or ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).read_bytes()
    if parts.scheme not in KEY_SCHEMES:
        raise ValueError(f"{parts.scheme or 'nothing'} is no scheme for keys: {', '.join(KEY_SCHEMES)} are")
    opener = urllib.request.build_opener(_SafeRedirects)
    with opener.open(url, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES} bytes")
    return content


class JwksKeeper:
    """The keeper of one JWKS; Kafka's RefreshingHttpsJwks. ``keys`` are the current ones; the scheduler's threads
    replace them, one at a time.
    """

    def __init__(
        self,
        url: str,
        *,
        refresh_ms: int,
        backoff_ms: int,
        max_backoff_ms: int,
        load: Callable[[str], bytes] = fetch,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.keys = SigningKeys(self._come_sooner)
        self._url = url
        self._refresh_ms = refresh_ms
        self._backoff_ms = max(backoff_ms, 1)
        self._max_backoff_ms = max_backoff_ms
        self._load = load
        self._clock = clock
        self._scheduler: KafkaScheduler | None = None
        self._failures = 0
        self._due_ms = 0
        self._read_ms = -_SOONER_MS
        self._reading = threading.Lock()  # lock order 17

    def startup(self, scheduler: KafkaScheduler) -> None:
        """Fetches the keys now, and from then on in the background. A provider that does not answer does not
        keep the broker from starting: until it does, tokens are refused.
        """
        self._scheduler = scheduler
        self._refresh()

    def _refresh(self) -> None:
        with self._reading:
            if self._clock.monotonic_ms() < self._due_ms:
                return  # somebody else was sooner
            self._read_ms = self._clock.monotonic_ms()
            delay_ms = self._read()
            self._due_ms = self._clock.monotonic_ms() + delay_ms
        if self._scheduler is not None:
            with suppress(RuntimeError):  # the broker stops
                self._scheduler.schedule("jwks-refresh", self._refresh, delay_ms)

    def _read(self) -> int:
        """Reads once; returns when to read again, in ms."""
        try:
            count = self.keys.replace(self._load(self._url))
        except (OSError, ValueError) as error:
            delay_ms = min(self._backoff_ms << min(self._failures, 20), self._max_backoff_ms)
            self._failures += 1
            _log.warning("jwks_unread", url=_shown(self._url), error=str(error), retry_ms=delay_ms)
            return delay_ms
        self._failures = 0
        _log.info("jwks_read", url=_shown(self._url), keys=count)
        return self._refresh_ms

    def _come_sooner(self) -> None:
        """Called on a network thread: schedules a fetch, if the last one is not too recent."""
        now_ms = self._clock.monotonic_ms()
        if self._scheduler is None or self._failures or now_ms - self._read_ms < _SOONER_MS:
            return
        self._read_ms = now_ms
        self._due_ms = 0
        with suppress(RuntimeError):  # the broker stops
            self._scheduler.schedule("jwks-refresh", self._refresh, 0)


def _shown(url: str) -> str:
    """The URL without a user's password or a query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
