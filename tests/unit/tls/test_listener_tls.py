"""A listener's key store, trust store and other TLS settings: what is taken, and what is refused with which words."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.network.handshakes import PrincipalError
from broker.tls.listener_tls import ListenerTls, load, now_utc
from broker.tls.settings import TlsError
from tests.support.certificates import DAY, Authority, subject
from tests.support.tls_pairs import tls_pair
from tests.support.tls_sites import Site, client_of, shaken

PASSWORD = "open sesame"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# -- what is taken


@pytest.mark.parametrize("with_rsa", [False, True])
def test_a_key_store_may_be_a_pem_file_a_pkcs12_file_or_text(site: Site, with_rsa: bool) -> None:
    below = Authority("Intermediate CA", site.ca)
    own = below.issue(with_rsa=with_rsa)
    p12 = str(own.write_p12(site.directory / "broker.p12", PASSWORD))
    sealed = str(own.write_pem(site.directory / "sealed.pem", PASSWORD))
    trust12 = str(site.ca.write_p12(site.directory / "ca.p12", PASSWORD))
    text = {
        "ssl_keystore_location": None,
        "ssl_keystore_key": own.key_pem(PASSWORD).decode(),
        "ssl_keystore_certificate_chain": own.chain_pem.decode(),
        "ssl_truststore_location": None,
        "ssl_truststore_certificates": site.ca.pem.decode(),
        "ssl_key_password": PASSWORD,
    }
    ways: list[dict[str, str | None]] = [
        {"ssl_keystore_location": sealed, "ssl_key_password": PASSWORD},
        {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": p12, "ssl_keystore_password": PASSWORD},
        {"ssl_keystore_type": None, "ssl_keystore_location": p12, "ssl_keystore_password": PASSWORD},
        {
            "ssl_truststore_type": "PKCS12",
            "ssl_truststore_location": trust12,
            "ssl_truststore_password": PASSWORD,
        },
        text,
        {key: value and " ".join(value.splitlines()) for key, value in text.items()},  # on one line each
    ]
    for way in ways:
        state = load(site.settings(**way), between_brokers=True, now=now_utc())
        assert len(state.chain) in (1, 2)
    listener = ListenerTls(site.settings(**ways[1]), between_brokers=True)
    server, client = shaken(listener, client_of(site.ca))  # only the root is known to the client
    with server, client:
        assert client.version() == "TLSv1.3"


def test_a_certificate_that_is_its_own_issuer_is_trusted_where_it_is_in_the_trust_store(site: Site) -> None:
    alone = Authority("alone")
    pem = site.file("alone.pem", alone.issued.key_pem() + alone.pem)
    trust = site.file("alone-trust.pem", alone.pem)
    settings = site.settings(ssl_keystore_location=pem, ssl_truststore_location=trust)
    assert load(settings, between_brokers=True, now=now_utc())


def test_an_intermediate_certificate_may_be_the_anchor_as_in_java(site: Site) -> None:
    below = Authority("Intermediate CA", site.ca)
    pem = str(below.issue().write_pem(site.directory / "below.pem"))
    trust = site.file("below-trust.pem", below.pem)
    settings = site.settings(ssl_keystore_location=pem, ssl_truststore_location=trust)
    assert load(settings, between_brokers=True, now=now_utc())


@pytest.mark.parametrize(
    ("suites", "versions", "version", "cipher"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", None, "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("ECDHE-ECDSA-AES256-GCM-SHA384", None, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (None, "TLSv1.2", "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (None, "TLSv1.3", "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        (
            "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256",
            None,
            "TLSv1.3",
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_suites_and_versions_are_what_the_keys_say(
    site: Site, suites: str | None, versions: str | None, version: str, cipher: str
) -> None:
    listener = ListenerTls(
        site.settings(ssl_cipher_suites=suites, ssl_enabled_protocols=versions), between_brokers=True
    )
    server, client = shaken(listener, client_of(site.ca))
    with server, client:
        assert client.version() == version
        assert (client.cipher() or ("",))[0] == cipher


def test_renegotiation_is_refused(site: Site) -> None:
    """OpenSSL's command line client asks for it by a line of R; Python's cannot."""
    listener = ListenerTls(site.settings(ssl_enabled_protocols="TLSv1.2"), between_brokers=False)
    with tls_pair.by_openssl(listener.state.server, "-tls1_2") as pair:
        pair.say(b"one\n")
        assert pair.hear(4) == b"one\n"
        pair.say(b"R\n")
        assert pair.heard_by_peer(b"RENEGOTIATING")
        with pytest.raises((OSError, AssertionError)):  # the client gives up: it got no new handshake
            pair.hear(1)
        assert pair.heard_by_peer(b"no renegotiation")


# -- who is there


def test_a_client_with_a_certificate_is_who_the_rules_make_of_its_name(site: Site) -> None:
    rules = "RULE:^CN=(.*?),OU=people.*$/$1/L,DEFAULT"
    settings = site.settings(ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    listener = ListenerTls(settings, between_brokers=False)
    for own, principal in (
        (site.ca.issue(subject("Alice", "people"), ()), "User:alice"),
        (site.ca.issue(subject("Bob", "bots"), ()), "User:CN=Bob,OU=bots,C=DE"),
        (None, "User:ANONYMOUS"),
    ):
        server, client = shaken(listener, client_of(site.ca, own, site.directory))
        with server, client:
            assert listener.principal(server) == principal


def test_a_name_without_a_rule_is_nobody(site: Site) -> None:
    settings = site.settings(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=x$/x/")
    listener = ListenerTls(settings, between_brokers=False)
    server, client = shaken(listener, client_of(site.ca, site.ca.issue("y", ()), site.directory))
    with server, client, pytest.raises(PrincipalError, match="no rule"):
        listener.principal(server)


def test_a_client_of_another_authority_is_refused_even_if_it_need_not_have_a_certificate(site: Site) -> None:
    for auth in ("requested", "required"):
        listener = ListenerTls(site.settings(ssl_client_auth=auth), between_brokers=False)
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(listener, client_of(site.ca, Authority("Other").issue("x", ()), site.directory))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shaken(listener, client_of(site.ca))


# -- what is refused


def test_what_is_missing_is_named_with_its_key(site: Site) -> None:
    assert site.refusal(ssl_keystore_location=None) == (
        "ssl.keystore.location",
        "must be set, or ssl.keystore.key and ssl.keystore.certificate.chain: listener SSL has no certificate",
    )
    assert site.refusal(ssl_keystore_location="/nowhere/x.pem") == (
        "ssl.keystore.location",
        "/nowhere/x.pem does not exist: create it, or correct the path",
    )
    assert site.refusal(ssl_truststore_location="/nowhere/ca.pem")[0] == "ssl.truststore.location"
    assert site.refusal(ssl_keystore_location=site.file("empty", b""))[1].endswith("empty is empty")
    key, words = site.refusal(ssl_keystore_location=str(site.trust))
    assert (key, "has no private key" in words) == ("ssl.keystore.location", True)
    key, words = site.refusal(ssl_keystore_location=site.file("key.pem", site.ca.issue().key_pem()))
    assert (key, "has no certificate" in words) == ("ssl.keystore.location", True)


def test_a_wrong_password_is_told_from_a_missing_one(site: Site) -> None:
    own = site.ca.issue()
    sealed = str(own.write_pem(site.directory / "sealed.pem", PASSWORD))
    p12 = str(own.write_p12(site.directory / "broker.p12", PASSWORD))
    store = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": p12}
    for changes, key, words in (
        ({"ssl_keystore_location": sealed}, "ssl.key.password", "must be set"),
        ({"ssl_keystore_location": sealed, "ssl_key_password": "x"}, "ssl.key.password", "does not open"),
        (store, "ssl.keystore.password", "must be set"),
        ({**store, "ssl_keystore_password": "x"}, "ssl.keystore.password", "does not open"),
        (
            {**store, "ssl_keystore_password": PASSWORD, "ssl_key_password": "other"},
            "ssl.key.password",
            "has one password",
        ),
        ({"ssl_keystore_password": "x"}, "ssl.keystore.password", "is PEM, which has none"),
    ):
        found = site.refusal(**changes)
        assert (found[0], words in found[1]) == (key, True), found
        assert PASSWORD not in found[1]


def test_javas_own_format_is_refused_with_the_command_that_converts_it(site: Site) -> None:
    jks = site.file("broker.jks", bytes.fromhex("feedfeed00000002") + bytes(100))
    key, words = site.refusal(ssl_keystore_type="JKS", ssl_keystore_location=jks)
    assert key == "ssl.keystore.location"
    assert (
        f"keytool -importkeystore -srckeystore {jks} -srcstoretype JKS -destkeystore {jks}.p12 -deststoretype PKCS12"
        in words
    )
    assert words.endswith("and set ssl.keystore.type=PKCS12")
    assert "PEM file: set it to PEM" in site.refusal(ssl_keystore_type="PKCS12")[1]
    p12 = str(site.ca.issue().write_p12(site.directory / "x.p12", PASSWORD))
    assert "but PKCS12: set ssl.keystore.type" in site.refusal(ssl_keystore_location=p12)[1]
    noise = site.file("noise", b"\x00noise")
    assert "is no PKCS#12 file" in site.refusal(ssl_keystore_type="PKCS12", ssl_keystore_location=noise)[1]


def test_text_and_file_exclude_each_other_and_text_comes_in_two(site: Site) -> None:
    own = site.ca.issue()
    key = {"ssl_keystore_key": own.key_pem().decode()}
    chain = {"ssl_keystore_certificate_chain": own.chain_pem.decode()}
    assert site.refusal(**key)[0] == "ssl.keystore.certificate.chain"
    assert "keep one of them" in site.refusal(**key, **chain)[1]
    assert (
        "set it to PEM"
        in site.refusal(**key, **chain, ssl_keystore_location=None, ssl_keystore_type="JKS")[1]
    )
    assert "keep one of them" in site.refusal(ssl_truststore_certificates=site.ca.pem.decode())[1]


def test_a_key_that_does_not_fit_its_certificate_is_refused(site: Site) -> None:
    mixed = site.file("mixed.pem", site.ca.issue().key_pem() + site.ca.issue("other").chain_pem)
    key, words = site.refusal(ssl_keystore_location=mixed)
    assert key == "ssl.keystore.location"
    assert f"the private key does not fit the certificate CN=other,C=DE in {mixed}" in words


def test_certificates_that_do_not_follow_from_each_other_are_refused(site: Site) -> None:
    own = site.ca.issue()
    stray = site.file("stray.pem", own.key_pem() + own.chain_pem + Authority("Stray").pem)
    words = site.refusal(ssl_keystore_location=stray)[1]
    assert "certificate 2 in" in words
    assert "did not sign certificate 1, CN=broker,C=DE" in words


def test_a_certificate_out_of_its_time_is_refused_with_the_day(site: Site) -> None:
    for name, begins, ends, words in (
        ("old", -9 * DAY, -2 * DAY, "expired on "),
        ("new", 2 * DAY, 9 * DAY, "is not valid before "),
    ):
        own = site.ca.issue(name, begins=begins, ends=ends)
        pem = str(own.write_pem(site.directory / f"{name}.pem"))
        key, found = site.refusal(ssl_keystore_location=pem)
        assert key == "ssl.keystore.location"
        assert f"the certificate CN={name},C=DE in {pem} {words}" in found
    gone = Authority("Gone CA", begins=-9 * DAY, ends=-DAY)
    key, found = site.refusal(ssl_truststore_location=site.file("gone.pem", gone.pem))
    assert (key, "expired" in found) == ("ssl.truststore.location", True)
    both = site.file("both.pem", gone.pem + site.ca.pem)
    assert load(site.settings(ssl_truststore_location=both), between_brokers=True, now=now_utc())


def test_an_authority_that_does_not_fit_is_refused_where_brokers_connect_to_each_other(site: Site) -> None:
    other = site.file("other.pem", Authority("Other").pem)
    key, words = site.refusal(between_brokers=True, ssl_truststore_location=other)
    assert key == "ssl.truststore.location"
    assert "brokers with these settings could not connect to each other" in words
    # A listener for clients alone may have its certificate from somewhere else.
    assert load(site.settings(ssl_truststore_location=other), between_brokers=False, now=now_utc())


def test_suites_that_cannot_be_used_are_refused(site: Site) -> None:
    for suites, versions, words in (
        ("TLS_NONSENSE,ECDHE-ECDSA-AES256-GCM-SHA384", None, "TLS_NONSENSE is no cipher suite"),
        ("ECDHE-RSA-AES256-GCM-SHA384", None, "no suite fits the certificate's key"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "TLSv1.3", "has no suite for ssl.enabled.protocols=TLSv1.3"),
        ("TLS_AES_128_GCM_SHA256", None, "offered together or not at all"),
    ):
        key, found = site.refusal(ssl_cipher_suites=suites, ssl_enabled_protocols=versions)
        assert (key, words in found) == ("ssl.cipher.suites", True), found


def test_rules_with_a_typo_are_refused(site: Site) -> None:
    assert site.refusal(ssl_principal_mapping_rules="RULE:x")[0] == "ssl.principal.mapping.rules"


# -- what changes


def test_a_new_file_is_taken_for_new_connections_and_old_ones_stay(site: Site) -> None:
    settings = site.settings()
    listener = ListenerTls(settings, between_brokers=True)
    old = shaken(listener, client_of(site.ca))
    assert not listener.is_due(settings)
    site.ca.issue(ends=200 * DAY).write_pem(site.pem)
    assert listener.is_due(settings)
    listener.reload(settings)
    assert not listener.is_due(settings)
    assert 199 < listener.days_left() < 200
    new = shaken(listener, client_of(site.ca))
    numbers = []
    for server, client in (old, new):
        with server, client:
            server.sendall(b"x")
            assert client.recv(1) == b"x"
            numbers.append((client.getpeercert() or {})["serialNumber"])
    assert numbers[0] != numbers[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda site: site.pem.write_bytes(b"half written"), "has no private key"),
        (lambda site: site.pem.unlink(), "does not exist"),
        (lambda site: site.ca.issue("other").write_pem(site.pem), "set ssl.allow.dn.changes=true"),
        (
            lambda site: site.ca.issue(hosts=("localhost",)).write_pem(site.pem),
            "IPAddress:127.0.0.1: set ssl.allow.san",
        ),
        (lambda site: Authority("Other").issue().write_pem(site.pem), "could not connect to each other"),
    ],
)
def test_a_bad_new_file_changes_nothing_and_is_tried_once(site: Site, change: Any, words: str) -> None:
    settings = site.settings()
    listener = ListenerTls(settings, between_brokers=True)
    before = listener.state
    change(site)
    assert listener.is_due(settings)
    with pytest.raises(TlsError, match=words):
        listener.reload(settings)
    assert listener.state is before
    assert not listener.is_due(settings)
    site.ca.issue().write_pem(site.pem)
    assert listener.is_due(settings)
    listener.reload(settings)
    assert listener.state is not before


def test_a_certificate_may_change_its_names_where_that_is_allowed(site: Site) -> None:
    settings = site.settings(ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    listener = ListenerTls(settings, between_brokers=True)
    site.ca.issue("other", ("h",)).write_pem(site.pem)
    listener.reload(settings)
    assert listener.state.chain[0].subject.rfc4514_string().startswith("CN=other")


def test_a_certificate_for_another_name_is_refused_in_openssls_words(site: Site) -> None:
    listener = ListenerTls(site.settings(), between_brokers=True)
    ours, theirs = socket.socketpair()
    server = threading.Thread(target=_accepted, args=(listener, ours))
    server.start()
    theirs.settimeout(10)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        listener.secure(theirs, "other.example")
    server.join(10)


def _accepted(listener: ListenerTls, sock: socket.socket) -> None:
    sock.settimeout(10)
    with suppress(OSError), closing(listener.wrap(sock)) as accepted:
        accepted.do_handshake()
