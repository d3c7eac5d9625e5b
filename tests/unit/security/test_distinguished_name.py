"""Distinguished names as Java writes them: what Kafka's ACLs and rules have. The texts are Java's."""

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from broker.security.distinguished_name import java_name


def name(*attributes):
    return x509.Name([x509.NameAttribute(*attribute) for attribute in attributes])


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            [(NameOID.COUNTRY_NAME, "US"), (NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "Duke")],
            "CN=Duke,O=Org,C=US",
        ),
        (
            [(NameOID.DOMAIN_COMPONENT, "com"), (NameOID.USER_ID, "u1"), (NameOID.STREET_ADDRESS, "s")],
            "STREET=s,UID=u1,DC=com",
        ),
        ([(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        ([(NameOID.COMMON_NAME, "  two before, one behind ")], "CN=\\ \\ two before\\, one behind\\ "),
        ([(NameOID.COMMON_NAME, "Jürgen")], "CN=Jürgen"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.TITLE, "x" * 200, _ASN1Type.UTF8String)], "2.5.4.12=#0c81c8" + "78" * 200),
        ([(NameOID.TITLE, "é", _ASN1Type.BMPString)], "2.5.4.12=#1e0200e9"),
        ([], ""),
    ],
)
def test_a_name_is_written_as_java_does(attributes, text):
    assert java_name(name(*attributes)) == text


def test_two_attributes_of_one_part_are_joined():
    part = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
    )
    assert java_name(x509.Name([part])) in ("CN=a+UID=b", "UID=b+CN=a")
