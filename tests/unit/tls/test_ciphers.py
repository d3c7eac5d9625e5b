"""Cipher suites: Kafka's configurations have Java's names, and OpenSSL has its own."""

import subprocess

import pytest

from broker.tls.ciphers import TLS_1_3, Suites, openssl_name, suites_of


def test_every_suite_with_certificates_of_this_openssl_is_known_by_both_names():
    shown = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL:@SECLEVEL=0"], capture_output=True, text=True, check=True
    )
    pairs = [line.split()[:3:2] for line in shown.stdout.splitlines()]
    usual = ("TLS_ECDHE_RSA_WITH_", "TLS_ECDHE_ECDSA_WITH_", "TLS_DHE_RSA_WITH_", "TLS_RSA_WITH_")
    checked = [(iana, own) for iana, own in pairs if iana.startswith(usual) and "ARIA" not in iana]
    assert len(checked) > 30
    for iana, own in checked:
        assert openssl_name(iana) == own
        assert openssl_name(own) == own


def test_suites_are_sorted_by_the_version_that_they_are_for():
    names = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", *TLS_1_3, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"]
    assert suites_of(names) == Suites(("ECDHE-RSA-AES128-GCM-SHA256",), tls_1_3=True)
    assert suites_of([]) == Suites((), tls_1_3=False)


def test_a_choice_among_those_of_tls_1_3_is_refused_because_it_would_not_be_kept():
    with pytest.raises(
        ValueError, match="add TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256, or remove"
    ):
        suites_of(["TLS_AES_256_GCM_SHA384"])
