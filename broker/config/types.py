"""The types of config values: parses a file's text into a Python value, and formats it as Kafka does.

Values are parsed as in Kafka 3.9's ConfigDef: surrounding blanks are dropped, booleans may be in any case,
lists are split at commas, and numbers must fit their width.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

Value = bool | int | float | str | tuple[str, ...] | None


class Type(IntEnum):
    """The type of a config. The numbers are the ``config_type`` of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS: Final = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}


def parse(kind: Type, text: str) -> Value:
    """The value of ``text``. Raises ValueError with a message that says what was expected."""
    text = text.strip()
    if kind in _BITS:
        return _parse_integer(text, _BITS[kind])
    if kind is Type.BOOLEAN:
        return _parse_boolean(text)
    if kind is Type.DOUBLE:
        return _parse_double(text)
    if kind is Type.LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    return text


def _parse_integer(text: str, bits: int) -> int:
    try:
        # Python's int() accepts "1_000" and blanks inside; Java's parser does not.
        number = int(text) if text.lstrip("+-").isdecimal() and text.isascii() else None
    except ValueError:
        number = None
    if number is None:
        raise ValueError(f"a whole number is expected{_unit_hint(text)}")
    limit = 1 << bits
    if not -limit <= number < limit:
        raise ValueError(f"a whole number between {-limit} and {limit - 1} is expected")
    return number


def _unit_hint(text: str) -> str:
    return " without a unit" if text[:1].isdigit() and text[-1:].isalpha() else ""


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return lowered == "true"


def _parse_double(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number is expected") from None
    if number != number:  # noqa: PLR0124 - only NaN differs from itself
        raise ValueError("a number is expected")
    return number


def render(value: Value) -> str | None:
    """The text that Kafka's DescribeConfigs returns for a value; None if unset."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(number: float) -> str:
    """Java's ``Double.toString``: plain between 1e-3 and 1e7, otherwise one digit, a fraction and
    an exponent.
    """
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    mantissa, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{number:.16e}".partition("e")
        mantissa = digits.rstrip("0")
        mantissa = mantissa + "0" if mantissa.endswith(".") else mantissa
    elif "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
