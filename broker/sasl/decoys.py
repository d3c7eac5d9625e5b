"""SCRAM credentials for names that nobody has: an outsider must not learn which users exist. Pure.

All brokers of a cluster make the same ones, also after a restart, from a secret that they share. A decoy has
the form that users' credentials have: their number of iterations, and a salt like theirs.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.sasl.credential import ScramCredential

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEXT: Final = frozenset(_DIGITS.encode())


class Form(NamedTuple):
    """What a client sees of a credential, apart from the salt's content. ``is_text``: the salt has digits and
    small letters only, as those that Kafka's tools make.
    """

    iterations: int
    salt_bytes: int
    is_text: bool

    @classmethod
    def of(cls, credential: ScramCredential) -> Form:
        return cls(credential.iterations, len(credential.salt), _TEXT.issuperset(credential.salt))


KAFKAS_FORM: Final = Form(4096, 26, is_text=True)
"""The usual form of credentials that Kafka's tools make."""
FindForms = Callable[[str], Iterable[Form]]


class Decoys:
    """The decoys of a cluster. ``secret`` is the same on all its brokers. ``forms`` returns the forms of a
    mechanism's credentials, each once.
    """

    def __init__(self, secret: bytes, forms: FindForms) -> None:
        self._secret = secret
        self._forms = forms

    def credential(self, mechanism: str, name: str, *, by_token: bool) -> ScramCredential:
        """The credential of a name that nobody has. Its keys fit no password."""
        asked = f"{mechanism}\0{'token' if by_token else 'user'}\0{name}"
        # A form that is added or disappears changes only the names that it wins or had won.
        form = max(
            self._forms(mechanism), key=lambda each: self._hash(f"{each}\0{asked}"), default=KAFKAS_FORM
        )
        key = secrets.token_bytes(64)
        return ScramCredential(self._salt(form, asked), key, key, form.iterations)

    def _salt(self, form: Form, asked: str) -> bytes:
        parts = range(-(-form.salt_bytes // 64) or 1)
        content = b"".join(self._hash(f"{part}\0{asked}") for part in parts)[: form.salt_bytes]
        return bytes(ord(_DIGITS[byte % 36]) for byte in content) if form.is_text else content

    def _hash(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), "sha512")
