"""Passwords among a broker's dynamic configs: encoded in the store, plain in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.config.listener_keys import own_key
from broker.config.problems import Problem
from broker.config.values import ConfigValues
from broker.security.password_encoder import EncoderSettings, PasswordEncoder, PasswordError


def is_secret(name: str) -> bool:
    key = own_key(name)
    return key is not None and key.sensitive


def encoded(config: ConfigValues, texts: Mapping[str, str], touched: Collection[str]) -> dict[str, str]:
    """``texts`` for the store: the passwords among the ``touched`` ones are encoded; others are already.
    Raises PasswordError.
    """
    return {
        name: _encoder(config).encode(text) if name in touched and is_secret(name) else text
        for name, text in texts.items()
    }


def decoded(
    config: ConfigValues, texts: Mapping[str, str], plain: Collection[str] = ()
) -> tuple[dict[str, str], list[Problem]]:
    """``texts`` from the store with passwords decoded, except those that are ``plain`` already; and the
    problems of those that cannot be, which are left out.
    """
    found: dict[str, str] = {}
    problems = []
    for name, text in texts.items():
        try:
            found[name] = _encoder(config).decode(text) if is_secret(name) and name not in plain else text
        except PasswordError as error:
            problems.append(Problem(name, None, str(error)))
    return found, problems


def _encoder(config: ConfigValues) -> PasswordEncoder:
    return PasswordEncoder(
        EncoderSettings(
            secret=config.opt_str("password.encoder.secret"),
            old_secret=config.opt_str("password.encoder.old.secret"),
            cipher=config.str("password.encoder.cipher.algorithm"),
            key_factory=config.opt_str("password.encoder.keyfactory.algorithm"),
            key_bits=config.int("password.encoder.key.length"),
            iterations=config.int("password.encoder.iterations"),
        )
    )
