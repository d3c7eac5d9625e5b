"""Passwords in ZooKeeper: encoded as Kafka's PasswordEncoder does, and opened by the same secret only."""

from dataclasses import replace

import pytest

from broker.security.password_encoder import EncoderSettings, PasswordEncoder, PasswordError

SETTINGS = EncoderSettings("the secret")


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("password", ["changeit", "", "long " * 100, "Jürgen 🔑"])
def test_what_is_encoded_is_decoded(cipher, bits, password):
    encoder = PasswordEncoder(replace(SETTINGS, cipher=cipher, key_bits=bits, iterations=1024))
    encoded = encoder.encode(password)
    assert not password or password not in encoded
    assert PasswordEncoder(SETTINGS).decode(encoded) == password  # all but the secret is in the text


def test_the_text_has_the_pairs_that_kafka_reads():
    encoded = PasswordEncoder(SETTINGS, random=bytes).encode("password")
    pairs = dict(pair.partition(":")[::2] for pair in encoded.split(","))
    assert set(pairs) == {
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "keyLength",
        "salt",
        "iterations",
        "encryptedPassword",
        "passwordLength",
        "initializationVector",
    }
    assert (pairs["keyFactoryAlgorithm"], pairs["keyLength"]) == ("PBKDF2WithHmacSHA512", "128")
    assert (pairs["passwordLength"], len(pairs["salt"])) == ("8", 344)


def test_two_encodings_of_one_password_differ():
    encoder = PasswordEncoder(SETTINGS)
    assert encoder.encode("x") != encoder.encode("x")


def test_an_old_secret_still_opens_what_it_closed():
    encoded = PasswordEncoder(EncoderSettings("before")).encode("x")
    assert PasswordEncoder(EncoderSettings("now", old_secret="before")).decode(encoded) == "x"
    with pytest.raises(PasswordError, match=r"password\.encoder\.old\.secret"):
        PasswordEncoder(EncoderSettings("now")).decode(encoded)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (EncoderSettings(None), "password.encoder.secret"),
        (replace(SETTINGS, cipher="DES"), "password.encoder.cipher.algorithm"),
        (replace(SETTINGS, key_bits=64), "password.encoder.key.length"),
        (replace(SETTINGS, key_factory="MD5"), "password.encoder.keyfactory.algorithm"),
    ],
)
def test_what_cannot_be_encoded_names_the_config(settings, key):
    with pytest.raises(PasswordError, match=key):
        PasswordEncoder(settings).encode("x")


@pytest.mark.parametrize("text", ["plain", "a:b", "salt:!,iterations:x", ""])
def test_damaged_text_is_an_error(text):
    with pytest.raises(PasswordError, match="damaged"):
        PasswordEncoder(SETTINGS).decode(text)
