"""JAAS entries: those of Kafka's documentation are read, and a typo is refused with its place and no secret."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.jaas import read_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        (
            (
                f'{PLAIN} required \n   username="admin" \n   password="admin-secret" \n'
                '   user_admin="admin-secret" \n   user_alice="alice-secret";'
            ),
            PLAIN,
            {
                "username": "admin",
                "password": "admin-secret",
                "user_admin": "admin-secret",
                "user_alice": "alice-secret",
            },
        ),
        (
            f'{SCRAM} required \\\n username="admin" password="admin-secret";'.replace("\\\n", ""),
            SCRAM,
            {"username": "admin", "password": "admin-secret"},
        ),
        (
            f'{SCRAM} required username="tokenID123" password="lAYYSFmLs4bTjf+lTZ1LCHR/ZZFNA==" tokenauth="true";',
            SCRAM,
            {"username": "tokenID123", "password": "lAYYSFmLs4bTjf+lTZ1LCHR/ZZFNA==", "tokenauth": "true"},
        ),
        (
            f'{OAUTH} required unsecuredLoginStringClaim_sub="admin";',
            OAUTH,
            {"unsecuredLoginStringClaim_sub": "admin"},
        ),
        (f"{OAUTH} Required ;", OAUTH, {}),
        (
            f"{PLAIN} required user_a='x;\"y' /* not here; */ user_b=plain-word; // the end",
            PLAIN,
            {"user_a": 'x;"y', "user_b": "plain-word"},
        ),
        (rf'{PLAIN} required user_a="q\"u\\o\te\101";', PLAIN, {"user_a": 'q"u\\o\teA'}),
        (f'{PLAIN} required "user_a@example.org"="x";', PLAIN, {"user_a@example.org": "x"}),
    ],
)
def test_an_entry_is_read(text: str, module: str, options: dict[str, str]) -> None:
    entry = read_jaas(text)
    assert (entry.module, entry.options) == (module, options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no login module"),
        (f'{PLAIN} required user_a="SECRET"', "does not end with a semicolon"),
        (f'{PLAIN} user_a="SECRET";', "at character 57: a control flag is expected"),
        (
            f'{PLAIN} required usernam="SECRET";',
            "usernam is no option of this login module. Did you mean username?",
        ),
        (f'{PLAIN} required username "SECRET";', "at character 75: = is expected after username"),
        (f"{PLAIN} required username=;", "at character 75: the value of username is expected"),
        (f'{PLAIN} required username="SECRET;', "at character 75: a quote that is not closed"),
        (f"{PLAIN} required password=SE+CRET;", "at character 77: a character to be quoted"),
        (f'{PLAIN} required user_a="SECRET" user_a="SECRET";', "user_a is there twice"),
        (f'{PLAIN} required user_a="SECRET"; {PLAIN} required;', "more after the semicolon"),
        (
            f'{PLAIN[:-1]} required user_a="SECRET";',
            "Did you mean org.apache.kafka.common.security.plain.PlainLoginModule",
        ),
        (
            "com.sun.security.auth.module.Krb5LoginModule required useKeytab=true;",
            "useKeytab is no option of this login module. Did you mean useKeyTab?",
        ),
        ('"SECRET" required;', "at character 1: the class of a login module is expected"),
    ],
)
def test_a_typo_is_refused_with_its_place_and_no_secret(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        read_jaas(text)
    assert message in str(refusal.value)
    assert "SECRET" not in str(refusal.value)


def test_an_entry_does_not_show_its_secrets() -> None:
    assert "SECRET" not in repr(read_jaas(f'{PLAIN} required user_a="SECRET";'))


@given(st.text("a=\"';/*\\ \n" + PLAIN[:6], max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        read_jaas(f"{PLAIN} required {text}")
