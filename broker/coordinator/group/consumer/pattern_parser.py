"""Reads the regular expressions of :mod:`.topic_pattern` and turns them into instructions. Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Final, NamedTuple

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_DIGIT: Final = frozenset(string.digits)
_CLASSES: Final = {
    "d": _DIGIT,
    "w": WORD & ALPHABET,
    "s": frozenset[str](),
    "D": ALPHABET - _DIGIT,
    "W": ALPHABET - WORD,
    "S": ALPHABET,
}
_POSIX: Final = {
    **dict.fromkeys(("blank", "cntrl", "space"), frozenset[str]()),
    **dict.fromkeys(("ascii", "graph", "print"), ALPHABET),
    "alnum": ALPHABET - frozenset("._-"),
    "alpha": frozenset(string.ascii_letters),
    "digit": _DIGIT,
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset("._-"),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD & ALPHABET,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_GROUP: Final = re.compile(r"\?(?:P?<[A-Za-z_]\w*>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
_COUNT: Final = re.compile(r"\{(\d{1,4})(,?)(\d{0,4})\}")
_HEX: Final = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_POSIX_NAME: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_MOST_REPEATS: Final = 1_000
_MOST_NESTED: Final = 100
_MOST_CODES: Final = 2_000


class InvalidPattern(ValueError):
    """The expression is no regular expression, or is too large or too expensive."""


class Code(NamedTuple):
    """An instruction: one of the characters; a fork into two ways; or a condition on the place."""

    kind: str
    chars: frozenset[str] = frozenset()
    one: int = 0
    other: int = 0


# A part of an expression: writes its instructions behind those that there are.
_Part = Callable[[list[Code]], None]


def _chars(chars: frozenset[str]) -> _Part:
    return lambda code: write_code(code, Code("chars", chars))


def _condition(kind: str) -> _Part:
    return lambda code: write_code(code, Code(kind))


def write_code(code: list[Code], one: Code) -> None:
    if len(code) >= _MOST_CODES:
        raise InvalidPattern("the expression is too large")
    code.append(one)


def _sequence(parts: list[_Part]) -> _Part:
    def write(code: list[Code]) -> None:
        for part in parts:
            part(code)

    return write


def _either(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]

    def write(code: list[Code]) -> None:
        ends = []
        for part in parts[:-1]:
            fork = len(code)
            write_code(code, Code("fork"))
            part(code)
            ends.append(len(code))
            write_code(code, Code("fork"))
            code[fork] = Code("fork", one=fork + 1, other=len(code))
        parts[-1](code)
        for end in ends:
            code[end] = Code("fork", one=len(code), other=len(code))

    return write


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    def write(code: list[Code]) -> None:
        for _ in range(least):
            before = len(code)
            part(code)
            if len(code) == before:
                return  # a thousand times nothing
        if most is None:
            fork = len(code)
            write_code(code, Code("fork"))
            part(code)
            write_code(code, Code("fork", one=fork, other=fork))
            code[fork] = Code("fork", one=fork + 1, other=len(code))
            return
        forks = []
        for _ in range(most - least):
            forks.append(len(code))
            write_code(code, Code("fork"))
            part(code)
        for fork in forks:
            code[fork] = Code("fork", one=fork + 1, other=len(code))

    return write


class Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = False
        self._nested = 0

    def parse(self) -> _Part:
        whole = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern("unexpected )")
        return whole

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern("the expression ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _alternatives(self) -> _Part:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise InvalidPattern("the expression is nested too deeply")
        parts = [self._concatenation()]
        while self._accept("|"):
            parts.append(self._concatenation())
        self._nested -= 1
        return _either(parts)

    def _concatenation(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in {"", "|", ")"}:
            if self._accept("\\Q"):
                end = self._text.find("\\E", self._at)
                end = len(self._text) if end < 0 else end
                parts += [_chars(self._literal(char)) for char in self._text[self._at : end]]
                self._at = min(end + 2, len(self._text))
            else:
                parts.append(self._counted(self._atom()))
        return _sequence(parts)

    def _counted(self, part: _Part) -> _Part:
        if self._accept("*"):
            part = _repeated(part, 0, None)
        elif self._accept("+"):
            part = _repeated(part, 1, None)
        elif self._accept("?"):
            part = _repeated(part, 0, 1)
        elif count := self._match(_COUNT):
            least = int(count[1])
            most = least if not count[2] and not count[3] else int(count[3]) if count[3] else None
            if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
                raise InvalidPattern(f"invalid count {count[0]}")
            part = _repeated(part, least, most)
        else:
            return part
        self._accept("?")  # whether it is lazy does not matter for a whole name
        if self._peek() in {"*", "+", "?"} or _COUNT.match(self._text, self._at):
            raise InvalidPattern("a count behind a count")
        return part

    def _atom(self) -> _Part:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return _chars(self._class())
        if char == ".":
            return _chars(ALPHABET)
        if char in {"^", "$"}:
            return _condition("begin" if char == "^" else "end")
        if char == "\\":
            return self._escape()
        if char in {"*", "+", "?"}:
            raise InvalidPattern(f"nothing to repeat before {char}")
        return _chars(self._literal(char))

    def _group(self) -> _Part:
        before = self._ignores_case
        if self._peek() == "?":
            group = self._match(_GROUP)
            if group is None:
                raise InvalidPattern("unknown kind of group")
            on, _, off = (group["flags"] or "").partition("-")
            self._ignores_case = (before or "i" in on) and "i" not in off
            if group["end"] == ")":  # the flags hold until the end of the group around them
                return _sequence([])
        part = self._alternatives()
        if not self._accept(")"):
            raise InvalidPattern("missing )")
        self._ignores_case = before
        return part

    def _escape(self) -> _Part:
        conditions = {"A": "begin", "z": "end", "b": "boundary", "B": "no boundary"}
        if self._peek() in conditions:
            return _condition(conditions[self._take()])
        return _chars(self._escaped())

    def _escaped(self) -> frozenset[str]:
        """The characters that an escape stands for, behind the backslash."""
        if code := self._match(_HEX):
            return self._literal(_char_of(int(code[1] or code[2], 16)))
        char = self._take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return self._literal(_CONTROLS[char])
        if char.isascii() and char.isalnum():
            raise InvalidPattern(f"unknown escape \\{char}")
        return self._literal(char)

    def _class(self) -> frozenset[str]:
        negated = self._accept("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if posix := self._match(_POSIX_NAME):
                if posix[2] not in _POSIX:
                    raise InvalidPattern(f"unknown class {posix[0]}")
                found |= ALPHABET - _POSIX[posix[2]] if posix[1] else _POSIX[posix[2]]
                continue
            low = self._class_char()
            if (
                len(low) == 1
                and self._text[self._at : self._at + 1] == "-"
                and self._text[self._at + 1 : self._at + 2] not in {"]", ""}
            ):
                self._at += 1
                high = self._class_char()
                if len(high) != 1 or high < low:
                    raise InvalidPattern(f"invalid range {low}-{high}")
                found |= {char for char in ALPHABET if low <= char <= high}
            else:
                found |= set(low) if len(low) == 1 else _CLASSES[low[1]]
        self._take()
        chars = frozenset(found)
        if self._ignores_case:
            chars |= {each for char in chars for each in (char.lower(), char.upper())}
        return ALPHABET - chars if negated else chars & ALPHABET

    def _class_char(self) -> str:
        r"""One character; or the name of a set of them, ``\d``."""
        char = self._take()
        if char != "\\":
            return char
        if self._peek() in _CLASSES:
            return "\\" + self._take()
        if code := self._match(_HEX):
            return _char_of(int(code[1] or code[2], 16))
        escaped = self._take()
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped.isascii() and escaped.isalnum():
            raise InvalidPattern(f"unknown escape \\{escaped}")
        return escaped

    def _literal(self, char: str) -> frozenset[str]:
        return frozenset({char.lower(), char.upper()} if self._ignores_case else {char})


def _char_of(code: int) -> str:
    if code > 0x10FFFF:
        raise InvalidPattern("no such character")
    return chr(code)
