"""Whether a value is what its annotations say, all the way down: what passes a decoder unseen fails far from it."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any

_PLAIN = (str, int, bool, bytes, uuid.UUID, enum.Enum)


def misfit(value: Any, hint: Any, where: str = "it") -> str | None:
    """What is wrong with a value; None if it fits. Numbers have 64 bits, and texts can be sent."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return None if value is None else f"{where} is {value!r}, not None"
    if origin in (typing.Union, types.UnionType):
        found = [misfit(value, argument, where) for argument in arguments]
        return None if None in found else "; ".join(str(each) for each in found)
    if origin in (tuple, list, frozenset):
        return _misfit_of_many(value, origin, arguments, where)
    if origin is not None and issubclass(origin, Mapping):
        return _misfit_of_map(value, arguments, where)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return _misfit_of_fields(value, hint, where)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is int):
        return f"{where} is {value!r}, no {hint.__name__}"
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return f"{where} has more than 64 bits"
    if isinstance(value, str) and not isinstance(value, enum.Enum) and not _can_be_sent(value):
        return f"{where} is no text that can be sent: {value!r}"
    return None


def _can_be_sent(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _misfit_of_many(value: Any, kind: type, arguments: tuple[Any, ...], where: str) -> str | None:
    if not isinstance(value, kind):
        return f"{where} is {value!r}, no {kind.__name__}"
    each = list(value)
    fixed = kind is tuple and arguments[-1] is not ...
    hints = arguments if fixed else [arguments[0]] * len(each)
    if len(hints) != len(each):
        return f"{where} has {len(each)} elements, not {len(hints)}"
    found = (
        misfit(one, hint, f"{where}[{number}]")
        for number, (one, hint) in enumerate(zip(each, hints, strict=True))
    )
    return next((wrong for wrong in found if wrong), None)


def _misfit_of_map(value: Any, arguments: tuple[Any, ...], where: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{where} is {value!r}, no map"
    for key, one in value.items():
        wrong = misfit(key, arguments[0], f"a key of {where}") or misfit(
            one, arguments[1], f"{where}[{key!r}]"
        )
        if wrong:
            return wrong
    return None


def _misfit_of_fields(value: Any, hint: Any, where: str) -> str | None:
    if not isinstance(value, hint):
        return f"{where} is {value!r}, no {hint.__name__}"
    found = (
        misfit(getattr(value, name), of_field, f"{where}.{name}")
        for name, of_field in typing.get_type_hints(hint).items()
    )
    return next((wrong for wrong in found if wrong), None)
