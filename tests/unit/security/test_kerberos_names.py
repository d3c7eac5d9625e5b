"""Users' names from Kerberos principals: the rules of Kafka's documentation, and rules with a mistake."""

from __future__ import annotations

import pytest

from broker.security.kerberos_names import KerberosNames, NameRefusedError

REALM = "EXAMPLE.COM"
# The example of Kafka's documentation of the key, and more of the same forms.
DOCUMENTED = "RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//"
APP = "s/App\\.(.*)/$1/g"


def names(*rules: str) -> KerberosNames:
    return KerberosNames(rules, REALM)


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["DEFAULT"], "alice@EXAMPLE.COM", "alice"),
        (["DEFAULT"], "kafka/broker1.example.com@EXAMPLE.COM", "kafka"),
        ([DOCUMENTED, "DEFAULT"], "user@MYDOMAIN.COM", "user"),
        ([DOCUMENTED, "DEFAULT"], "user@EXAMPLE.COM", "user"),
        (["RULE:[1:$1](App\\..*)" + APP, "DEFAULT"], "App.service-name@OTHER", "service-name"),
        (["RULE:[2:$1](App\\..*)" + APP, "DEFAULT"], "App.service-name/example.com@OTHER", "service-name"),
        (["RULE:[1:$1]/L"], "User@OTHER", "user"),
        (["RULE:[1:$1]/U"], "User@OTHER", "USER"),
        (["RULE:[2:$1]/L"], "TestABC/host@FOO.COM", "testabc"),
        (["RULE:[2:$1](Test.*)s/ABC///L"], "TestABC/host@FOO.COM", "test"),
        (["RULE:[2:$1](Test.*)s/ABC/XYZ/g/U"], "TestABCABC/host@FOO.COM", "TESTXYZXYZ"),
        (["RULE:[2:$1](Test.*)s/ABC/XYZ/"], "TestABCABC/host@FOO.COM", "TestXYZABC"),
        (["RULE:[2:$1.$2]"], "kafka/broker1@OTHER", "kafka.broker1"),
        (["RULE:[2:$1;$2](^.*;admin$)s/;admin$//"], "root/admin@OTHER", "root"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@(.*)/-$1/"], "eve@OTHER", "eve-OTHER"),
    ],
)
def test_the_first_rule_that_applies_names_the_user(rules: list[str], principal: str, user: str) -> None:
    assert names(*rules).user_of(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "reason"),
    [
        (["DEFAULT"], "alice@OTHER", "no rule of sasl.kerberos.principal.to.local.rules is for alice@OTHER"),
        (["RULE:[2:$1]"], "alice@EXAMPLE.COM", "no rule"),
        (["RULE:[1:$1](a.*)"], "alan/x@EXAMPLE.COM", "no rule"),
        (["RULE:[1:$1](a)"], "alice@EXAMPLE.COM", "no rule"),
        (["RULE:[1:$1@$0]"], "alice@OTHER", "which is no simple name"),
        (["RULE:[1:$1]s/.*//g"], "alice@OTHER", "which is no simple name"),
        (["DEFAULT"], "a/b/c@EXAMPLE.COM", "one or two components"),
        (["DEFAULT"], "alice", "and a realm"),
        (["DEFAULT"], "al\\@ice@EXAMPLE.COM", "one or two components"),
    ],
)
def test_a_principal_without_a_user_is_refused(rules: list[str], principal: str, reason: str) -> None:
    with pytest.raises(NameRefusedError, match=reason):
        names(*rules).user_of(principal)


def test_nobody_is_of_the_default_realm_where_there_is_none() -> None:
    with pytest.raises(NameRefusedError):
        KerberosNames(["DEFAULT"]).user_of("alice@EXAMPLE.COM")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("default", "is no rule"),
        ("DEFAULT/L", "is no rule"),
        ("RULE:[1:$1/L", "is no rule"),
        ("RULE:[2:$1]/L/U", "is no rule"),
        ("RULE:[1:$1]s/a/b", "is no rule"),
        ("RULE:[1:$2]", r"\$2 in .* is none of \$0 to \$1"),
        ("RULE:[1:$]", "is none of"),
        ("RULE:[3:$1]", "3 components: they have 1 or 2"),
        ("RULE:[:$1]", "0 components"),
        ("RULE:[1:$1](a[)", "no regular expression"),
        ("RULE:[1:$1]s/a/$/", "neither a group nor escaped"),
    ],
)
def test_a_rule_with_a_mistake_is_refused(rule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        names("DEFAULT", rule)
