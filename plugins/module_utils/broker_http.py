# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the HTTP port of a broker on its own host, by TLS and with a token where the port wants them.

While a deployment turns TLS on or off, a running broker speaks as it was started. The inventory, and after an
interrupted run also the file on the host, may say otherwise. So both schemes are tried.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SECURE, PLAIN = "https://", "http://"
UNAUTHORIZED = 401
_KEY_STORE = "landline.http.ssl.keystore.location="


class Answer(NamedTuple):
    """An HTTP status and body, and the URL that was asked. Without an answer `code` is 0 and `body` the reason."""

    code: int
    body: str
    url: str


def ask(
    broker: Mapping[str, Any], path: str, timeout_s: float, ca_file: str | None = None, token: str = ""
) -> Answer:
    """Returns a broker's answer; `broker` is one of broker_instances. Without an answer it is about its own `url`.

    The scheme of its `url` is tried first; https is not without `ca_file`, or while there is no such file. By http the
    token is sent only to a port that wants one, and only if the broker is to have no TLS, or has none in its file.
    """
    rest = broker["url"].rstrip("/").partition("://")[2]
    wanted = SECURE if broker["url"].startswith(SECURE) else PLAIN
    has_ca = bool(ca_file) and Path(str(ca_file)).is_file()
    first: Answer | None = None
    for scheme in (wanted, PLAIN if wanted == SECURE else SECURE):
        if scheme == SECURE and not has_ca and first is not None:
            break
        url = f"{scheme}{rest}{path}"
        try:
            code, body = _get(url, timeout_s, ca_file, token if scheme == SECURE else "")
            if code == UNAUTHORIZED and scheme == PLAIN and token and _has_no_tls(broker):
                code, body = _get(url, timeout_s, ca_file, token)
            return Answer(code, body, url)
        except (OSError, ValueError, http.client.HTTPException) as error:
            first = first or Answer(0, str(error), url)
            if isinstance(getattr(error, "reason", error), TimeoutError):
                break  # a port that hangs does so in either
    return first or Answer(0, "it has no address", str(broker["url"]))


def first_line(path: str | None) -> str:
    """Returns the token of a file; empty without a file. Raises OSError."""
    if not path or not Path(path).exists():
        return ""
    with Path(path).open(encoding="ascii", errors="replace") as file:
        return file.readline().strip()


def _has_no_tls(broker: Mapping[str, Any]) -> bool:
    if broker["url"].startswith(PLAIN):
        return True
    try:
        lines = Path(broker.get("config", "")).read_text().splitlines()
    except OSError:
        return False
    return not any(line.startswith(_KEY_STORE) for line in lines)


def _get(url: str, timeout_s: float, ca_file: str | None, token: str) -> tuple[int, str]:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    request = urllib.request.Request(url)  # noqa: S310 - http or https
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if url.startswith(SECURE):
        context = ssl.create_default_context(cafile=ca_file)
        # From Python 3.13 on it is strict, and refuses what brokers and Java's clients take: a CA's older certificates.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = False  # it is this host, whatever the certificate calls it
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
