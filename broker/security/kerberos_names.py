r"""`sasl.kerberos.principal.to.local.rules`: from a Kerberos principal to a user's name. Pure.

The first rule that applies counts. ``DEFAULT`` takes the first component of a principal of the default realm.
``RULE:[n:string](regexp)s/pattern/replacement/g`` is for principals with n components: in ``string``, ``$0`` is
the realm, ``$1`` and ``$2`` are the components. If the result matches ``regexp`` as a whole, what the pattern
matches in it is replaced, once or, with ``g``, everywhere. ``/L`` or ``/U`` behind that makes it lower or upper
case. The parts from ``(regexp)`` on may be absent. Kafka's KerberosShortNamer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.utils.java_regex import Replacement

KEY: Final = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)", re.DOTALL)
_RULE: Final = re.compile(
    r"DEFAULT|RULE:\[(?P<count>\d*):(?P<format>[^]]*)]"
    r"(?:\((?P<match>[^)]*)\))?(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU]?)",
    re.ASCII,
)
_PARAMETER: Final = re.compile(r"\$(\d*)", re.ASCII)
_NOT_SIMPLE: Final = re.compile(r"[/@]")
_MOST_COMPONENTS: Final = 2


class NameRefusedError(Exception):
    """A principal that is no user's; the message says why."""


class _KerberosRule(NamedTuple):
    """A rule; without a format, it is DEFAULT. ``most`` is 1 if only the first match is replaced."""

    components: int = 0
    format: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: Replacement | str = ""
    most: int = 0
    case: str = ""

    def apply(self, realm: str, components: Sequence[str], default_realm: str) -> str | None:
        if not self.components:
            return components[0] if realm == default_realm else None
        if len(components) != self.components:
            return None
        parts = (realm, *components)
        name = _PARAMETER.sub(lambda match: parts[int(match[1])], self.format)
        if self.match is not None and self.match.fullmatch(name) is None:
            return None
        return name if self.pattern is None else self.pattern.sub(self.replacement, name, count=self.most)

    def cased(self, name: str) -> str:
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name


class KerberosNames:
    """The rules of one listener. Raises ValueError for a rule that is none."""

    def __init__(self, rules: Sequence[str], default_realm: str = "") -> None:
        self._rules = [_parse(rule) for rule in rules]
        self._default_realm = default_realm

    def user_of(self, principal: str) -> str:
        """The name of the user. Raises :class:`NameRefusedError`."""
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            raise NameRefusedError(f"{principal!r} is no principal with one or two components and a realm")
        first, second, realm = match.groups()
        components = (first,) if second is None else (first, second)
        for rule in self._rules:
            name = rule.apply(realm, components, self._default_realm)
            if name is None:
                continue
            if _NOT_SIMPLE.search(name) or not name:
                raise NameRefusedError(f"{KEY} makes {name!r} of {principal}, which is no simple name")
            return rule.cased(name)
        raise NameRefusedError(f"no rule of {KEY} is for {principal}")


def _parse(text: str) -> _KerberosRule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no rule: DEFAULT or RULE:[n:string](regexp)s/pattern/replacement/g is expected"
        )
    if match["format"] is None:
        return _KerberosRule()
    components = int(match["count"] or 0)
    if not 1 <= components <= _MOST_COMPONENTS:
        raise ValueError(f"{text!r} is for principals of {components} components: they have 1 or 2")
    for number in _PARAMETER.findall(match["format"]):
        if not number or int(number) > components:
            raise ValueError(f"${number} in {text!r} is none of $0 to ${components}")
    pattern = _compiled(match["pattern"])
    return _KerberosRule(
        components,
        match["format"],
        _compiled(match["match"]),
        pattern,
        Replacement(match["replacement"], pattern.groups) if pattern is not None else "",
        0 if match["all"] else 1,
        match["case"],
    )


def _compiled(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
