"""`ssl.principal.mapping.rules`: which rule applies, and what becomes of the name. The cases are KIP-371's."""

import pytest

from broker.security.principal_mapping import MappingError, PrincipalMapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?), *OU=(.*?), *O=(.*?), *L=(.*?), *ST=(.*?), *C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("OU=JavaSoft,CN=Duke.x,O=Sun", "DUKE.X"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_applies(name, principal):
    assert PrincipalMapping(RULES).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("", None, None),
        (" , DEFAULT ,", "CN=a", "CN=a"),
        (r"RULE:^CN=(a\/b)$/$1/", "CN=a/b", "a/b"),
        (r"RULE:^CN=(.*)$/a\/$1\$/", "CN=x", "a/x$"),
        ("RULE:^CN=(.*)$/$1@$4/", "CN=x", "x@$4"),  # no fourth group: as it stands
        ("RULE:^CN=(.*)$/$12/", "CN=x", "x2"),  # no twelfth: the first, and a 2
        ("RULE:^CN=(.*),(OU=.*)?$/$1$2/", "CN=x,", "x"),  # a group that took no part
        ("RULE:^CN=(.*)$/$0!/", "CN=x", "CN=x!"),
        ("RULE:CN=[^,]*/one/,DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),  # not the whole name
        ("RULE:.+/\\\\x/U", "CN=é", "\\X"),
        ("RULE:.*/x/", "CN=a", "xx"),  # Java's replaceAll also replaces the empty match at the end
    ],
)
def test_rules_read_as_kafka_reads_them(rules, name, principal):
    mapping = PrincipalMapping(rules)
    if name is None:
        with pytest.raises(MappingError, match="no rule"):
            mapping.name_of("CN=a")
    else:
        assert mapping.name_of(name) == principal


def test_a_name_without_a_rule_is_refused():
    with pytest.raises(MappingError, match=r"no rule of ssl\.principal\.mapping\.rules matches CN=b"):
        PrincipalMapping("RULE:^CN=a$/a/").name_of("CN=b")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("RULE:^CN=(.*)$/$1", "is no rule"),
        ("RULE:^CN=(.*)$/$1/X", "is no rule"),
        ("RULE:^CN=(.*)$/$1/LU", "is no rule"),
        ("default", "is no rule"),
        ("RULE:^CN=((.*)$/$1/", "no regular expression"),
        ("RULE:^CN=(.*)$/cost: $/", "neither a group nor escaped"),
    ],
)
def test_a_typo_in_a_rule_is_named(rules, message):
    with pytest.raises(MappingError, match=message):
        PrincipalMapping(rules)
