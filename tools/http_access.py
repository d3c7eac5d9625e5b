"""How tools and smoke tests ask the brokers' HTTP ports: by TLS and with a token, if the environment names them.

``LANDLINE_HTTP_CA_FILE`` is the PEM file of the CA that issued the ports' certificates; with it they are asked by
https. ``LANDLINE_HTTP_TOKEN_FILE`` is a file whose first line is the token.
"""

from __future__ import annotations

import functools
import http.client
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from sparkctl.tunnel import Tunnel

CA_ENV = "LANDLINE_HTTP_CA_FILE"
TOKEN_ENV = "LANDLINE_HTTP_TOKEN_FILE"  # noqa: S105 - a variable's name


def scheme() -> str:
    """The scheme of the brokers' URLs."""
    return "https" if os.environ.get(CA_ENV) else "http"


def get(url: str, timeout_s: float, tunnel: Tunnel | None = None) -> tuple[int, str]:
    """HTTP status and body of a GET, past any proxy and through `tunnel`. Raises OSError without an answer."""
    request = urllib.request.Request(url)  # noqa: S310 - http or https
    token = _token(os.environ.get(TOKEN_ENV))
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    opener = _opener(os.environ.get(CA_ENV), tunnel)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        reason = tunnel.reason() if tunnel else ""
        raise OSError(f"by ssh: {reason}" if reason else _why(error)) from error


def _why(error: Exception) -> str:
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
        secure = f": a port with TLS needs {CA_ENV}" if scheme() == "http" else ""
        return f"what answers there does not speak HTTP{secure}"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended before the answer did"
    return str(error)


@functools.cache
def _opener(ca_file: str | None, tunnel: Tunnel | None) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    context = _context(ca_file) if ca_file else None
    if tunnel:
        handlers += tunnel.handlers(context)
    elif context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise SystemExit(f"{CA_ENV}={ca_file} cannot be used: {error}") from error
    # From Python 3.13 on it is strict, and refuses certificates that brokers take.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@functools.cache
def _token(path: str | None) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="ascii").split("\n", 1)[0].strip()
    except (OSError, ValueError) as error:
        raise SystemExit(f"{TOKEN_ENV}={path} cannot be read: {error}") from error
