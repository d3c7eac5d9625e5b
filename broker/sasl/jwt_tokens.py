"""Checks JSON web tokens as Kafka's validators do: the signature by a key of a JWKS, then the claims.

The caller keeps the keys up to date, and says what time it is. Tokens without a signature are checked by
:class:`UnsecuredTokens` alone, which is used only where Kafka's handler for them is configured.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.sasl.exchange import LoginIdentity
from broker.sasl.oauthbearer import TokenRefused

# Of public keys alone: with a shared secret, whoever checks tokens can make them too.
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
_LATEST_S: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What a signed token must claim; Kafka's ``sasl.oauthbearer.*``. ``audience`` is empty and ``issuer`` None if
    none is expected.
    """

    skew_s: float = 30
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    sub_claim: str = "sub"


def check_claims(claims: Mapping[str, Any], rules: ClaimRules, now_s: float) -> LoginIdentity:
    """The user of a token. Raises :class:`TokenRefused`."""
    expires_s = _time(claims, "exp")
    issued_s = _time(claims, "iat")
    not_before_s = _time(claims, "nbf") if "nbf" in claims else None
    if now_s - rules.skew_s >= expires_s:
        raise TokenRefused("the token has expired")
    if expires_s < issued_s or (not_before_s is not None and expires_s < not_before_s):
        raise TokenRefused("the token expires before it is valid")
    if not_before_s is not None and now_s + rules.skew_s < not_before_s:
        raise TokenRefused("the token is not valid yet (nbf)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token is of another issuer (iss)")
    _check_audience(claims.get("aud"), rules.audience)
    _check_scopes(claims.get(rules.scope_claim), rules.scope_claim)
    subject = claims.get(rules.sub_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused(f"the token names nobody ({rules.sub_claim})")
    return LoginIdentity(subject.strip(), int(expires_s * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_S:
        raise TokenRefused(f"the token has no valid {name}")
    return value


def _check_audience(claimed: Any, expected: tuple[str, ...]) -> None:
    """Like Kafka's validator, refuses a token with an audience if none is expected."""
    if claimed is None:
        if expected:
            raise TokenRefused("the token has no audience (aud)")
        return
    audience = [claimed] if isinstance(claimed, str) else claimed
    if not isinstance(audience, list) or not any(one in expected for one in audience):
        raise TokenRefused("the token is for another audience (aud)")


def _check_scopes(claimed: Any, name: str) -> None:
    scopes = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    texts = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(texts) != len(scopes) or "" in texts or len(set(texts)) != len(texts):
        raise TokenRefused(f"the token's scopes are empty, repeated or no text ({name})")


class SigningKeys:
    """The keys that sign tokens, of a JWKS. :meth:`replace` is called on any thread.

    ``on_missing`` is called when a token names a key that is not there.
    """

    def __init__(self, on_missing: Callable[[], None] = lambda: None) -> None:
        self.on_missing = on_missing
        self._keys: tuple[Any, ...] = ()

    def replace(self, content: bytes) -> int:
        """Takes a JWKS and returns the number of its keys. Raises ValueError if it is none."""
        from joserfc.errors import JoseError
        from joserfc.jwk import import_key

        try:
            listed = json.loads(content)["keys"]
            found = [
                import_key(each)
                for each in listed
                if each.get("kty") in ("RSA", "EC", "OKP") and each.get("use", "sig") == "sig"
            ]
        except (JoseError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is no JWKS: {error!r}") from error
        if not found:
            raise ValueError("it has no public key for signatures")
        self._keys = tuple(found)
        return len(found)

    def find(self, key_id: str | None) -> Any:
        """The key of this id, or the only one if the token names none. Raises :class:`TokenRefused`."""
        if key_id is None and len(self._keys) == 1:
            return self._keys[0]
        found = next((key for key in self._keys if key_id is not None and key.kid == key_id), None)
        if found is None:
            self.on_missing()
            raise TokenRefused("the token is signed by a key that is not known")
        return found


class SignedTokens:
    """Checks signed tokens; Kafka's OAuthBearerValidatorCallbackHandler."""

    def __init__(self, keys: SigningKeys, rules: ClaimRules, wall_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._wall_ms = wall_ms

    def check(self, token: str) -> LoginIdentity:
        """The user of a token. Raises :class:`TokenRefused`."""
        from joserfc import jws
        from joserfc.errors import JoseError

        key = self._keys.find(_key_id(token))
        try:
            content = jws.deserialize_compact(token, key, algorithms=ALGORITHMS).payload
        except (JoseError, ValueError, TypeError) as error:
            raise TokenRefused(f"the token's signature is not valid: {type(error).__name__}") from error
        return check_claims(_object(content), self._rules, self._wall_ms() / 1000)


class UnsecuredRules(NamedTuple):
    """The options of Kafka's handler for tokens without signatures, by its names: ``unsecuredValidator…``."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: tuple[str, ...] = ()
    skew_ms: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnsecuredRules:
        """Raises ValueError for a skew that is no number."""
        text = {name.removeprefix("unsecuredValidator"): value.strip() for name, value in options.items()}
        skew_ms = int(text.get("AllowableClockSkewMs") or 0)
        if skew_ms < 0:
            raise ValueError("unsecuredValidatorAllowableClockSkewMs is negative")
        return cls(
            text.get("PrincipalClaimName") or "sub",
            text.get("ScopeClaimName") or "scope",
            tuple(text.get("RequiredScope", "").split()),
            skew_ms,
        )


class UnsecuredTokens:
    """Checks tokens without a signature, which anybody can make; Kafka's handler of that name, for tests."""

    def __init__(self, rules: UnsecuredRules, wall_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._wall_ms = wall_ms

    def check(self, token: str) -> LoginIdentity:
        """The user of a token. Raises :class:`TokenRefused`."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise TokenRefused("the token is not one without a signature")
        if _object(_decoded(parts[0])).get("alg") != "none":
            raise TokenRefused("the token's algorithm is not none")
        claims = _object(_decoded(parts[1]))
        now_ms, skew_ms = self._wall_ms(), self._rules.skew_ms
        expires_ms = _time(claims, "exp") * 1000
        issued_ms = _time(claims, "iat") * 1000 if "iat" in claims else None
        if now_ms - skew_ms >= expires_ms:
            raise TokenRefused("the token has expired")
        if issued_ms is not None and (issued_ms > now_ms + skew_ms or expires_ms <= issued_ms):
            raise TokenRefused("the token was issued in the future (iat)")
        name = claims.get(self._rules.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefused(f"the token names nobody ({self._rules.principal_claim})")
        self._check_scope(claims.get(self._rules.scope_claim))
        return LoginIdentity(name, int(expires_ms))

    def _check_scope(self, claimed: Any) -> None:
        has: Iterable[str] = claimed.split() if isinstance(claimed, str) else claimed or ()
        scopes = {one for one in has if isinstance(one, str)} if isinstance(has, list) else set()
        missing = [scope for scope in self._rules.required_scopes if scope not in scopes]
        if missing:
            raise TokenRefused("the token lacks a scope", scope=" ".join(self._rules.required_scopes))


def _key_id(token: str) -> str | None:
    """The id of the key that the token's header names."""
    header = _object(_decoded(token.partition(".")[0]))
    key_id = header.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("the token's key id is no text")
    return key_id


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenRefused("the token is not base64") from error


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise TokenRefused("the token is not JSON") from error
    if not isinstance(value, dict):
        raise TokenRefused("the token has no claims")
    return value
