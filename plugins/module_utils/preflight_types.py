# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Which variables of a host are of another type than a role's argument specification has. Pure: the specifications and
the values are given.

Ansible itself looks when a role begins, which is after the first change, and then names the role's variable and not the
inventory's that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

# A default that is another variable of the inventory, which has the same type then.
_STANDS_FOR = re.compile(r"\{\{ (\w+) \| default\(")
_WORDS = {
    "bool": "true or false",
    "dict": "keys with values",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "a text",
}
# What an empty value stands for in most places where one of these is wanted.
_MAY_BE_EMPTY = ("path", "raw", "str")
_KINDS: dict[str, type] = {"dict": Mapping, "list": list}
_SHOWN = 40


def options_with_aliases(
    options: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Returns a role's options by name, and by that of an inventory's: brokers_per_host stands for broker_count."""
    stand = {
        found[1]: options[name]
        for name, default in defaults.items()
        if name in options and (found := _STANDS_FOR.match(str(default)))
    }
    return {**stand, **options}


def mistyped(name: str, value: Any, option: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is wrong with a variable's value, in words without anything that may be secret."""
    wanted = str(option.get("type", "str"))
    words = _WORDS.get(wanted, wanted)
    if value is None:
        if wanted not in _MAY_BE_EMPTY:
            yield f"{name} is empty: it has to be {words}. Give it a value, or take the line out"
        return
    # Ansible would make a list of a text with commas, which the roles do not.
    is_right = _kind(value) == (wanted if wanted in _KINDS else "") or wanted == "raw"
    spec = {"type": wanted}
    if not is_right or ArgumentSpecValidator({name: spec}).validate({name: value}).error_messages:
        yield f"{name} is {_shown(value, option)}: it has to be {words}"
        return
    yield from ArgumentSpecValidator({name: dict(option)}).validate({name: value}).error_messages


def _shown(value: Any, option: Mapping[str, Any]) -> str:
    """A value, or what kind of value it is if it may be secret or is long."""
    if kind := _kind(value):
        return _WORDS[kind]
    text = repr(value) if isinstance(value, (int, float)) else repr(str(value))
    return "something else" if option.get("no_log") or len(text) > _SHOWN else text


def _kind(value: Any) -> str:
    """Which of the types with elements it is; "" for none."""
    return next((kind for kind, its in _KINDS.items() if isinstance(value, its)), "")
