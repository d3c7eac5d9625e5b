"""The contract of lifecycle events, ``docs/lifecycle.schema.json``, as used by tests.

Readers ignore unknown fields. Code that creates events here must not add any: for a test an unknown field is
a fault, as a missing one is.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

Event = Mapping[str, Any]
ROOT = Path(__file__).resolve().parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/lifecycle.schema.json").read_text(encoding="utf-8"))
RUN: dict[str, Any] = SCHEMA["$defs"]["run"]
VERSION: int = SCHEMA["properties"]["schema"]["const"]
_TYPES = {"integer": "int", "boolean": "bool"}


def faults(events: Iterable[Event]) -> list[str]:
    """What is wrong with events that are created here; empty when they follow the contract."""
    strict = copy.deepcopy(SCHEMA)
    strict["additionalProperties"] = strict["$defs"]["run"]["additionalProperties"] = False
    validator = Draft202012Validator(strict)
    found = [
        f"{event.get('step')}: {error.message}" for event in events for error in validator.iter_errors(event)
    ]
    return found + [
        f"{event['step']}: id {event['id']} is not start_id:seq"
        for event in events
        if event.get("id") != f"{event.get('start_id')}:{event.get('seq')}"
    ]


def is_readable(event: Event) -> bool:
    """Whether a reader has to accept it, as an event that was published before."""
    return Draft202012Validator(SCHEMA).is_valid(event)


def values(name: str, of: Mapping[str, Any] = SCHEMA) -> set[str]:
    """The allowed values of a field."""
    return set(of["properties"][name]["enum"])


def least_event(step: str = "Bind") -> dict[str, Any]:
    """An event with only the required fields, generated from the contract: each has a different value."""
    event = {**_least(SCHEMA, 1_000), "step": step}
    if step == "Run":
        event |= {"role": "launcher", "start_id": "a launch", "run": _least(RUN, 2_000)}
    return event | {"id": f"{event['start_id']}:{event['seq']}"}


def table(of: Mapping[str, Any]) -> str:
    """The table of its fields in docs/lifecycle.md."""
    needed = of["required"]
    rows = [
        f"| `{name}` | {_type(field)}{'' if name in needed else ', optional'} | {field['description']} |"
        for name, field in of["properties"].items()
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) + "\n"


def _least(of: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {
        name: _value(name, of["properties"][name], number + place)
        for place, name in enumerate(of["required"])
    }


def _value(name: str, field: Mapping[str, Any], number: int) -> object:
    if "const" in field or "enum" in field:
        return field.get("const") or field["enum"][0]
    wanted = field["type"] if isinstance(field["type"], str) else field["type"][0]
    return {"integer": number, "string": f"a {name}", "boolean": True, "array": [f"one of {name}"]}[wanted]


def _type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return "object"
    if field["type"] == "array":
        return f"list of {field['items']['type']}"
    types = [field["type"]] if isinstance(field["type"], str) else field["type"]
    return " or ".join(_TYPES.get(name, name) for name in types)
