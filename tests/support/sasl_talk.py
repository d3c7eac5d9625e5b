"""A client that authenticates step by step, right or wrong, and keeps what the broker answered."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.framing import response_body_offset
from broker.sasl.exchange import LoginFailed
from broker.sasl.scram_client import ScramTokens
from rig.raw_client import RawClient, request_frame
from tests.support.acl_matrix import outcome
from tests.support.sasl_frames import plain
from tests.support.secured import GUEST, PASSWORDS, SHA_256


class Talk:
    """A conversation with one broker, and what it answered."""

    def __init__(self, client: RawClient) -> None:
        self.heard: list[str] = []
        self._client = client

    def say(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Sends a request; the answer is noted and returned, None if the connection was closed."""
        return self.say_body(key, version, codec.encode(key, version, "request", fields))

    def say_body(self, key: ApiKey, version: int, body: bytes, answer_version: int | None = None) -> Any:
        self._client.send(request_frame(key, version, body))
        try:
            frame = memoryview(self._client.receive_frame())
        except ConnectionError:
            self.heard.append(f"{key.name}: closed")
            return None
        version = version if answer_version is None else answer_version
        answer = codec.decode(key, version, "response", frame[response_body_offset(key, version, frame) :])
        self.heard.append(f"{key.name}: {outcome(answer)}")
        return answer

    def send_bare(self, data: bytes) -> None:
        """Bytes of one frame without a header; notes the size of the answer."""
        self._client.send(struct.pack(">i", len(data)) + data)
        try:
            self.heard.append(f"bare: {len(self._client.receive_frame())} bytes")
        except ConnectionError:
            self.heard.append("bare: closed")

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        answer = self.say(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)
        if answer is not None:
            self.heard.append(f"offered: {sorted(answer.mechanisms)}")

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.say(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)

    def log_in(self, user: str = GUEST) -> None:
        self.handshake()
        self.authenticate(plain(user, PASSWORDS[user]))

    def scram(self, user: str, password: str, mechanism: str = SHA_256, *, by_token: bool = False) -> None:
        """The whole exchange. Only how it ends is kept: Landline refuses an unknown name with the proof, as it
        refuses a wrong password, so that nobody learns who exists. Kafka refuses it at once.
        """
        client, challenge = ScramTokens(mechanism, user, password, by_token=by_token), b""
        before = len(self.heard)
        with suppress(LoginFailed):
            while (token := client.next(challenge)) is not None:
                answer = self.authenticate(token)
                if answer is None or answer.error_code:
                    break
                challenge = answer.auth_bytes
        self.heard[before:] = self.heard[-1:]

    def request(self) -> None:
        """A request whose response has an error for the whole. Landline closes the connection at others."""
        self.say(ApiKey.LIST_GROUPS, 0)

    def end(self) -> None:
        """Notes whether the connection is open."""
        self.heard.append("open" if self._client.is_open() else "closed")
