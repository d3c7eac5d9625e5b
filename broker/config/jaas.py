"""Reads a JAAS entry, as in ``sasl.jaas.config``: a login module's class, a control flag, options, a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" user_admin="secret";

The words are those of Java's StreamTokenizer: values in quotes of either kind, with Java's escapes, and
comments. No message has any of the text but class and option names, for the rest may be passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.config.problems import did_you_mean

Modules = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
_MODULES: Final = "org.apache.kafka.common.security."
# By the class of the login module: the mechanisms they are for, and their options (a `*` at the end
# stands for any more letters).
_KNOWN: Final[Modules] = {
    f"{_MODULES}plain.PlainLoginModule": (("PLAIN",), ("username", "password", "user_*")),
    f"{_MODULES}scram.ScramLoginModule": (
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        ("username", "password", "tokenauth"),
    ),
    f"{_MODULES}oauthbearer.OAuthBearerLoginModule": (
        ("OAUTHBEARER",),
        (
            "clientId",
            "clientSecret",
            "scope",
            "extension_*",
            "unsecuredLoginStringClaim_*",
            "unsecuredLoginNumberClaim_*",
            "unsecuredLoginListClaim_*",
            "unsecuredLoginExtension_*",
            "unsecuredLoginPrincipalClaimName",
            "unsecuredLoginLifetimeSeconds",
            "unsecuredLoginScopeClaimName",
            "unsecuredValidatorPrincipalClaimName",
            "unsecuredValidatorScopeClaimName",
            "unsecuredValidatorRequiredScope",
            "unsecuredValidatorAllowableClockSkewMs",
        ),
    ),
    # Java's, and beside its options Kafka's serviceName.
    "com.sun.security.auth.module.Krb5LoginModule": (
        ("GSSAPI",),
        (
            "useKeyTab",
            "keyTab",
            "principal",
            "serviceName",
            "storeKey",
            "useTicketCache",
            "ticketCache",
            "renewTGT",
            "doNotPrompt",
            "isInitiator",
            "refreshKrb5Config",
            "useFirstPass",
            "tryFirstPass",
            "storePass",
            "clearPass",
            "debug",
        ),
    ),
}
# The login modules of a `Client` section, which is for ZooKeeper.
ZOOKEEPERS: Final[Modules] = {
    "org.apache.zookeeper.server.auth.DigestLoginModule": (("DIGEST-MD5",), ("username", "password")),
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[\w$.\-]+)
    |(?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROL: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasEntry(NamedTuple):
    """A login module and its options; Kafka's JaasContext has one. ``mechanisms`` are those it is for."""

    module: str
    options: Mapping[str, str]
    mechanisms: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<JaasEntry {self.module} with {', '.join(self.options)}>"


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


def read_jaas(text: str, modules: Modules = _KNOWN) -> JaasEntry:
    """The only entry of ``text``, for one of ``modules``. Raises ValueError, with the place of what is wrong."""
    tokens = _tokens(text)
    module = next(tokens)
    if module.kind == "end":
        raise ValueError("has no login module")
    entry = _module(module, modules)
    flag = next(tokens)
    if flag.kind != "word" or flag.text.lower() not in _FLAGS:
        raise ValueError(f"{_at(flag)}: a control flag is expected after the login module, such as required")
    options: dict[str, str] = {}
    while (token := next(tokens)).text != ";" or token.kind != "sign":
        if token.kind == "end":
            raise ValueError("does not end with a semicolon")
        name, value = _option(token, tokens, entry.options)
        if name in options:
            raise ValueError(f"{_at(token)}: option {name} is there twice")
        options[name] = value
    rest = next(tokens)
    if rest.kind != "end":
        raise ValueError(f"{_at(rest)}: there is more after the semicolon; one login module is expected")
    return JaasEntry(module.text, options, entry.mechanisms)


class _Known(NamedTuple):
    mechanisms: tuple[str, ...]
    options: tuple[str, ...]


def _module(token: _Token, modules: Modules) -> _Known:
    if token.kind == "word" and token.text in modules:
        return _Known(*modules[token.text])
    if token.kind != "word":
        raise ValueError(f"{_at(token)}: the class of a login module is expected")
    if "Krb5" in token.text and modules is not _KNOWN:
        raise ValueError(f"{_at(token)}: {token.text} is for GSSAPI, which is not supported here")
    hint = did_you_mean(token.text, modules)
    raise ValueError(f"{_at(token)}: {token.text} is none of Kafka's login modules.{hint}")


def _option(token: _Token, tokens: Iterator[_Token], known: tuple[str, ...]) -> tuple[str, str]:
    if token.kind not in ("word", "quoted"):
        raise ValueError(f"{_at(token)}: the name of an option is expected")
    name = token.text
    if not any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in known):
        hint = did_you_mean(name, [one for one in known if not one.endswith("*")])
        raise ValueError(f"{_at(token)}: {name} is no option of this login module.{hint}")
    equals = next(tokens)
    if equals.text != "=" or equals.kind != "sign":
        raise ValueError(f"{_at(equals)}: = is expected after {name}")
    value = next(tokens)
    if value.kind not in ("word", "quoted"):
        raise ValueError(f"{_at(value)}: the value of {name} is expected, in quotes")
    return name, value.text


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            what = "a quote that is not closed" if text[position] in "\"'" else "a character to be quoted"
            raise ValueError(f"at character {position + 1}: {what}")
        kind = match.lastgroup or ""
        if kind == "quoted":
            yield _Token(kind, _ESCAPE.sub(_escaped, match[0][1:-1]), position)
        elif kind != "blank":
            yield _Token(kind, match[0], position)
        position = match.end()
    while True:
        yield _Token("end", "", position)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code.isdecimal() and code < "8" else _CONTROL.get(code, code)


def _at(token: _Token) -> str:
    return "at its end" if token.kind == "end" else f"at character {token.place + 1}"
