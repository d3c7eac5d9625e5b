"""The client's side of SCRAM, for connections between brokers. Pure.

Not by scramp, which changes passwords by SASLprep. Kafka does not, so a password beyond ASCII would fail.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from broker.sasl.credential import from_base64, to_base64
from broker.sasl.exchange import LoginFailed
from broker.sasl.scram import ALGORITHMS, salted_password

_SERVER_FIRST: Final = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,6})(?:,.*)?")
_GS2: Final = "n,,"


class ScramTokens:
    """The client's side of SCRAM; Kafka's ScramSaslClient. See :class:`~broker.sasl.exchange.Tokens`.
    ``nonce`` is a random one if it is empty. ``by_token``: user and password are a delegation token's.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str = "", *, by_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._algorithm = ALGORITHMS[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        if by_token:
            self._bare += ",tokenauth=true"
        self._signature = b""
        self._step = 0

    def next(self, challenge: bytes) -> bytes | None:
        self._step += 1
        if self._step == 1:
            return f"{_GS2}{self._bare}".encode()
        try:
            message = challenge.decode()
            if self._step == 2:
                return self._final(message).encode()
            signature = from_base64(message.removeprefix("v="))
        except ValueError as error:
            raise LoginFailed("the server's answer is not SCRAM's") from error
        if not hmac.compare_digest(signature, self._signature):
            raise LoginFailed("the server does not know the password itself: is it the right one?")
        return None

    def _final(self, message: str) -> str:
        match = _SERVER_FIRST.fullmatch(message)
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise LoginFailed("the server's first answer is not SCRAM's")
        iterations = int(match[3])
        if iterations < self._algorithm.min_iterations:
            raise LoginFailed(f"the server asks for {iterations} iterations only")
        name = self._algorithm.hash_name
        salted = salted_password(self._mechanism, self._password, from_base64(match[2]), iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        unproved = f"c={to_base64(_GS2.encode())},r={match[1]}"
        signed = f"{self._bare},{message},{unproved}".encode()
        proof = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        proof = bytes(a ^ b for a, b in zip(client_key, proof, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        return f"{unproved},p={to_base64(proof)}"
