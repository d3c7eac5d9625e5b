"""OAUTHBEARER: whose tokens are taken, by Kafka's rules for claims, and what is answered to the others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from broker.sasl.exchange import LoginFailed, LoginIdentity
from broker.sasl.jwt_tokens import (
    ClaimRules,
    SignedTokens,
    SigningKeys,
    UnsecuredRules,
    UnsecuredTokens,
    check_claims,
)
from broker.sasl.oauthbearer import OAuthBearerExchange, TokenRefused

NOW_S = 1_700_000_000
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 100}
NO_JOSE = "joserfc is not installed"


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def number(value: int, size: int) -> str:
    return b64(value.to_bytes(size, "big"))


def jwks() -> bytes:
    modulus, point = RSA.public_key().public_numbers(), EC.public_key().public_numbers()
    keys = [
        {"kty": "RSA", "kid": "r", "use": "sig", "n": number(modulus.n, 256), "e": number(modulus.e, 3)},
        {"kty": "EC", "kid": "e", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)},
        {"kty": "oct", "kid": "o", "k": b64(b"shared secret of thirty-two bytes")},
    ]
    return json.dumps({"keys": keys}).encode()


def signed(claims: dict[str, Any], key_id: str | None = "r", alg: str = "RS256") -> str:
    header = {"alg": alg} | ({} if key_id is None else {"kid": key_id})
    content = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"
    if alg == "ES256":
        r, s = decode_dss_signature(EC.sign(content.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{content}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
    return f"{content}.{b64(RSA.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def unsigned(claims: dict[str, Any], alg: str = "none") -> str:
    return f"{b64(json.dumps({'alg': alg}).encode())}.{b64(json.dumps(claims).encode())}."


def first(token: str, authorization: str = "", extensions: str = "") -> bytes:
    named = f"a={authorization}" if authorization else ""
    return f"n,{named},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CLAIMS.items() if key != name}


class TestExchange:
    def check(self, token: str) -> LoginIdentity:
        if token == "lacks.a.scope":
            raise TokenRefused("no scope", scope="kafka")
        if token != "good":
            raise TokenRefused("not good")
        return LoginIdentity("alice", 99)

    def test_a_good_token_proves_its_user(self) -> None:
        for message in (first("good"), first("good", "alice"), first("good", extensions="x=y\x01")):
            exchange = OAuthBearerExchange(self.check)
            assert exchange.answer(message) == b""
            assert exchange.identity == LoginIdentity("alice", 99)

    @pytest.mark.parametrize(
        ("token", "told"),
        [
            ("bad", '{"status":"invalid_token"}'),
            ("lacks.a.scope", '{"status": "insufficient_scope", "scope": "kafka"}'),
        ],
    )
    def test_a_refused_token_is_answered_in_json_and_then_fails(self, token: str, told: str) -> None:
        exchange = OAuthBearerExchange(self.check)
        assert exchange.answer(first(token)) == told.encode()
        with pytest.raises(LoginFailed) as failure:
            exchange.answer(b"\x01")
        assert failure.value.told == told

    def test_only_a_token_that_is_parsed_in_no_time_is_parsed(self) -> None:
        room = 64 * 1024 - len(first("good", extensions="x=\x01"))
        exchange = OAuthBearerExchange(self.check)
        assert exchange.answer(first("good", extensions=f"x={'y' * room}\x01")) == b""
        with pytest.raises(LoginFailed, match="more than 65536 bytes"):
            OAuthBearerExchange(self.check).answer(first("good", extensions=f"x={'y' * (room + 1)}\x01"))

    def test_there_is_no_second_try(self) -> None:
        exchange = OAuthBearerExchange(self.check)
        exchange.answer(first("bad"))
        with pytest.raises(LoginFailed):
            exchange.answer(first("good"))

    def test_nobody_may_act_for_another(self) -> None:
        with pytest.raises(LoginFailed):
            OAuthBearerExchange(self.check).answer(first("good", "bob"))

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\x01",
            b"n,,\x01\x01",
            b"y,,\x01auth=Bearer good\x01\x01",
            b"n,,\x01auth=Basic good\x01\x01",
            b"n,,\x01auth=Bearer good\x01",
            b"n,,\x01auth=Bearer g ood\x01\x01",
            b"\xff",
        ],
    )
    def test_a_malformed_message_fails(self, message: bytes) -> None:
        with pytest.raises(LoginFailed):
            OAuthBearerExchange(self.check).answer(message)

    @given(st.binary(max_size=100) | st.text("n,\x01auth=Ber god", max_size=40).map(str.encode))
    def test_any_bytes_fail_or_are_answered(self, message: bytes) -> None:
        exchange = OAuthBearerExchange(self.check)
        try:
            exchange.answer(message)
        except LoginFailed:
            assert exchange.identity is None


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        (CLAIMS, ClaimRules()),
        ({**CLAIMS, "iat": NOW_S - 60, "exp": NOW_S - 29}, ClaimRules()),
        ({**CLAIMS, "iat": NOW_S + 50}, ClaimRules()),
        ({**CLAIMS, "nbf": NOW_S + 29}, ClaimRules()),
        ({**CLAIMS, "aud": "kafka"}, ClaimRules(audience=("kafka", "other"))),
        ({**CLAIMS, "aud": ["x", "other"]}, ClaimRules(audience=("kafka", "other"))),
        ({**CLAIMS, "iss": "https://idp"}, ClaimRules(issuer="https://idp")),
        ({**CLAIMS, "iss": "any"}, ClaimRules()),
        ({**CLAIMS, "scope": "a b"}, ClaimRules()),
        ({**CLAIMS, "scp": ["a", "b"]}, ClaimRules(scope_claim="scp")),
        ({**without("sub"), "name": " alice "}, ClaimRules(sub_claim="name")),
    ],
)
def test_claims_that_kafka_takes_are_taken(claims: dict[str, Any], rules: ClaimRules) -> None:
    assert check_claims(claims, rules, NOW_S) == LoginIdentity("alice", claims["exp"] * 1000)


@pytest.mark.parametrize(
    ("claims", "rules", "why"),
    [
        (without("exp"), ClaimRules(), "no valid exp"),
        (without("iat"), ClaimRules(), "no valid iat"),
        ({**CLAIMS, "exp": "soon"}, ClaimRules(), "no valid exp"),
        ({**CLAIMS, "exp": True}, ClaimRules(), "no valid exp"),
        ({**CLAIMS, "exp": float("inf")}, ClaimRules(), "no valid exp"),
        ({**CLAIMS, "iat": -1}, ClaimRules(), "no valid iat"),
        ({**CLAIMS, "exp": NOW_S - 30}, ClaimRules(), "has expired"),
        ({**CLAIMS, "iat": NOW_S + 101}, ClaimRules(), "expires before"),
        ({**CLAIMS, "nbf": NOW_S + 31}, ClaimRules(), "not valid yet"),
        (CLAIMS, ClaimRules(audience=("kafka",)), "has no audience"),
        ({**CLAIMS, "aud": "kafka"}, ClaimRules(), "another audience"),
        ({**CLAIMS, "aud": {"a": 1}}, ClaimRules(audience=("a",)), "another audience"),
        (CLAIMS, ClaimRules(issuer="https://idp"), "another issuer"),
        ({**CLAIMS, "scope": ["a", "a"]}, ClaimRules(), "scopes"),
        ({**CLAIMS, "scope": [""]}, ClaimRules(), "scopes"),
        (without("sub"), ClaimRules(), "names nobody"),
        ({**CLAIMS, "sub": "  "}, ClaimRules(), "names nobody"),
        ({**CLAIMS, "sub": 7}, ClaimRules(), "names nobody"),
    ],
)
def test_claims_that_kafka_refuses_are_refused(claims: dict[str, Any], rules: ClaimRules, why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        check_claims(claims, rules, NOW_S)


class TestSigned:
    @pytest.fixture(autouse=True)
    def tokens(self) -> None:
        pytest.importorskip("joserfc", reason=NO_JOSE)
        self.missing = 0
        keys = SigningKeys(self.miss)
        assert keys.replace(jwks()) == 2
        self.signed = SignedTokens(keys, ClaimRules(), lambda: NOW_S * 1000)

    def miss(self) -> None:
        self.missing += 1

    def test_a_token_signed_by_a_known_key_is_taken(self) -> None:
        assert self.signed.check(signed(CLAIMS)).name == "alice"
        assert self.signed.check(signed(CLAIMS, "e", "ES256")).name == "alice"

    def test_a_token_without_a_key_id_is_taken_if_there_is_one_key(self) -> None:
        keys = SigningKeys()
        keys.replace(json.dumps({"keys": json.loads(jwks())["keys"][:1]}).encode())
        assert (
            SignedTokens(keys, ClaimRules(), lambda: NOW_S * 1000).check(signed(CLAIMS, None)).name == "alice"
        )
        with pytest.raises(TokenRefused, match="not known"):
            self.signed.check(signed(CLAIMS, None))

    def test_an_unknown_key_is_asked_for(self) -> None:
        with pytest.raises(TokenRefused, match="not known"):
            self.signed.check(signed(CLAIMS, "new"))
        assert self.missing == 1

    @pytest.mark.parametrize(
        "token",
        [
            unsigned(CLAIMS),
            signed(CLAIMS, "r", "HS256"),
            signed(CLAIMS, "e", "RS256"),
            signed(CLAIMS, "o"),
            signed(CLAIMS)[:-4] + "AAAA",
            signed(CLAIMS).replace(".", ".e30", 1),
            signed([]),  # type: ignore[arg-type]
            signed({**CLAIMS, "exp": NOW_S - 40}),
            "a.b.c",
            "",
            "...",
        ],
    )
    def test_any_other_token_is_refused(self, token: str) -> None:
        with pytest.raises(TokenRefused):
            self.signed.check(token)

    @given(st.text("ab.=-_eyJ", max_size=60))
    def test_any_text_is_refused(self, text: str) -> None:
        keys = SigningKeys()
        keys.replace(jwks())
        with pytest.raises(TokenRefused):
            SignedTokens(keys, ClaimRules(), lambda: NOW_S * 1000).check(text)

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[]}', b'{"keys":[{"kty":"RSA"}]}', b"\xff"]
    )
    def test_what_is_no_jwks_is_refused_and_the_keys_stay(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"."):
            self.signed._keys.replace(content)
        assert self.signed.check(signed(CLAIMS)).name == "alice"


def test_an_unsecured_token_is_taken_by_its_own_check_alone() -> None:
    rules = UnsecuredRules.of(
        {
            "unsecuredValidatorPrincipalClaimName": "sub",
            "unsecuredValidatorRequiredScope": "a b",
            "username": "x",
        }
    )
    check = UnsecuredTokens(rules, lambda: NOW_S * 1000).check
    assert check(unsigned({**CLAIMS, "scope": "b a c"})) == LoginIdentity("alice", CLAIMS["exp"] * 1000)  # type: ignore[operator]
    assert check(unsigned({**CLAIMS, "scope": ["b", "a"]})).name == "alice"
    with pytest.raises(TokenRefused) as refusal:
        check(unsigned({**CLAIMS, "scope": "a"}))
    assert refusal.value.scope == "a b"


@pytest.mark.parametrize(
    "token",
    [
        unsigned(CLAIMS, "RS256"),
        unsigned(CLAIMS) + "AAAA",
        unsigned(without("exp")),
        unsigned({**CLAIMS, "exp": NOW_S}),
        unsigned({**CLAIMS, "iat": NOW_S + 1}),
        unsigned({**CLAIMS, "iat": CLAIMS["exp"]}),
        unsigned(without("sub")),
        "a.b.",
        "",
    ],
)
def test_a_wrong_unsecured_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        UnsecuredTokens(UnsecuredRules(), lambda: NOW_S * 1000).check(token)
