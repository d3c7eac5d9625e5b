"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), with Kafka's ``tokenauth``. Pure.

Not by scramp, which refuses attributes of more than one letter, such as ``tokenauth``; tests hold both against
each other. A name that nobody has gets a salt all the same (:mod:`.decoys`), and fails with the proof.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.sasl.credential import Known, Lookup, ScramCredential, from_base64, to_base64
from broker.sasl.decoys import Decoys
from broker.sasl.exchange import LoginFailed, LoginIdentity


class Algorithm(NamedTuple):
    """A SCRAM mechanism: its hash, and its number in Kafka's requests."""

    hash_name: str
    number: int
    min_iterations: int = 4096
    max_iterations: int = 16384


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "SCRAM-SHA-256": Algorithm("sha256", 1),
    "SCRAM-SHA-512": Algorithm("sha512", 2),
}
DEFAULT_ITERATIONS: Final = 4096
# To parse a longer one would take the network thread longer than anybody's turn.
_MOST_BYTES: Final = 16 * 1024
_NAME: Final = r"(?:[^=,\0]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[!-+\--~]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_FINAL: Final = re.compile(r"c=([^,]+),r=([^,]+)(?:,[A-Za-z]+=[^,\0]+)*")


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds, by design. The password is used as it is, as by Kafka, without SASLprep."""
    return hashlib.pbkdf2_hmac(ALGORITHMS[mechanism].hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential for a salted password."""
    name = ALGORITHMS[mechanism].hash_name
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def new_credential(
    mechanism: str, password: str, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None
) -> ScramCredential:
    """The credential for a password, with a random salt."""
    salt = salt or secrets.token_bytes(24)
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


class ScramExchange:
    """An authentication by SCRAM; Kafka's ScramSaslServer. See :class:`~broker.sasl.exchange.Exchange`.

    ``decoys`` are for names that ``lookup`` does not find. ``nonce`` is the server's part of the nonce; a
    random one if it is empty.
    """

    def __init__(self, mechanism: str, lookup: Lookup, decoys: Decoys, nonce: str = "") -> None:
        self.identity: LoginIdentity | None = None
        self.claimed = ""
        self._hash = ALGORITHMS[mechanism].hash_name
        self._min_iterations = ALGORITHMS[mechanism].min_iterations
        self._lookup = lookup
        self._decoys = decoys
        self._mechanism = mechanism
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._known: Known | None = None
        self._found = self._by_token = self._ended = False
        self._gs2 = self._messages = ""

    def answer(self, token: bytes) -> bytes:
        if self._ended:
            raise LoginFailed("a token came after the exchange")
        if len(token) > _MOST_BYTES:
            raise LoginFailed(f"the token has more than {_MOST_BYTES} bytes")
        try:
            message = token.decode()
        except UnicodeDecodeError as error:
            raise LoginFailed("the token is not UTF-8") from error
        if self._known is None:
            return self._begin(message).encode()
        self._ended = True
        return self._end(message, self._known).encode()

    def _begin(self, message: str) -> str:
        match = _FIRST.fullmatch(message)
        if match is None:
            raise LoginFailed("the client's first message is malformed")
        self.claimed = _unescaped(match["user"])
        self._by_token = ",tokenauth=true," in f"{match['extensions'].lower()},"
        found = self._lookup(self.claimed, self._by_token)
        self._found = found is not None
        decoy = self._decoys.credential(self._mechanism, self.claimed, by_token=self._by_token)
        self._known = found or Known(decoy, self.claimed)  # made for all: names take the same time
        if _unescaped(match["authorization"] or "") not in ("", self.claimed):
            raise LoginFailed("another authorization id than the user name was asked for")
        credential = self._known.credential
        if credential.iterations < self._min_iterations:
            raise LoginFailed(f"its {credential.iterations} iterations are fewer than {self._min_iterations}")
        self._gs2, self._nonce = match["gs2"], match["nonce"] + self._nonce
        first = f"r={self._nonce},s={to_base64(credential.salt)},i={credential.iterations}"
        self._messages = f"{match['bare']},{first}"
        return first

    def _end(self, message: str, known: Known) -> str:
        unproved, _, proof_text = message.rpartition(",p=")
        match = _FINAL.fullmatch(unproved)
        if match is None:
            raise LoginFailed("the client's final message is malformed")
        if match[1] != to_base64(self._gs2.encode()) or match[2] != self._nonce:
            raise LoginFailed("the client's final message is not for this exchange")
        try:
            proof = from_base64(proof_text)
        except ValueError as error:
            raise LoginFailed("the proof is not base64") from error
        signed = f"{self._messages},{unproved}".encode()
        if not self._is_proof(proof, signed, known.credential.stored_key):
            raise LoginFailed("wrong password" if self._found else "no such user, or without this mechanism")
        self.identity = LoginIdentity(known.name, known.expires_ms, self._by_token)
        return f"v={to_base64(hmac.digest(known.credential.server_key, signed, self._hash))}"

    def _is_proof(self, proof: bytes, signed: bytes, stored_key: bytes) -> bool:
        signature = hmac.digest(stored_key, signed, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        digest = hashlib.new(self._hash, client_key).digest()
        return hmac.compare_digest(digest, stored_key) and self._found


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
