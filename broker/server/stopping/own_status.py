"""Asks the broker of a properties file for its /status, on the same host: with the TLS and the token of the file.

Best effort: without an answer there is no status, and why is told once.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.config.endpoint import host_port
from broker.config.http_keys import HTTP_KEY_STORE, TOKEN_FILE
from broker.config.problems import ConfigError

_HTTP_S: Final = 2.0
_PREFIXES: Final = ("landline.http.", "ssl.cipher.suites", "ssl.enabled.protocols")


def http_url(properties: Mapping[str, str]) -> str | None:
    """The URL of the broker's HTTP port; None if it has no fixed port."""
    port = properties.get("landline.http.port", "")
    host = properties.get("landline.http.host", "")
    if not port.isdecimal() or int(port) == 0:
        return None
    scheme = "https" if properties.get(HTTP_KEY_STORE) else "http"
    host = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 - asked, not bound
    return f"{scheme}://{host_port(host, port)}"


class OwnStatus:
    """The /status of the broker that runs with these properties, whenever it is called; empty if unknown. The
    key store and the token are those of the files then. ``tell`` receives why they cannot be read.
    """

    def __init__(self, properties: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._properties = properties
        self._url = http_url(properties)
        self._tell = tell
        self._told = False

    def __call__(self) -> Mapping[str, Any]:
        if self._url is None:
            return {}
        try:
            with self._opener().open(self._request(), timeout=_HTTP_S) as answer:
                found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        except ConfigError as error:
            if not self._told:
                self._told = True
                self._tell(f"the broker's HTTP port cannot be asked how far a recovery is: {error}")
            return {}
        return found if isinstance(found, dict) else {}

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._properties.get(HTTP_KEY_STORE):
            from broker.config.static_check import values_of
            from broker.tls.http import own_context

            context = own_context(values_of(self._properties, _PREFIXES))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)

    def _request(self) -> urllib.request.Request:
        request = urllib.request.Request(f"{self._url}/status")  # noqa: S310 - http or https
        path = self._properties.get(TOKEN_FILE)
        if path:
            from broker.config.token_file import read_tokens

            token = read_tokens(path).values[0].decode()
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        return request
