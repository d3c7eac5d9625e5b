"""Writes broker/protocol/requests.pyi and responses.pyi, the message types for mypy, and field_names.py.

python tools/message_types.py [--check]     --check only reports whether they are up to date

At run time each version of a message has its own class. The stubs have one class for all served versions. It
has the fields of every version, and notes the versions that have a field where not all do.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import sys
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from broker.protocol import codec  # noqa: E402
from broker.protocol.api_keys import APIS, Api, ApiKey  # noqa: E402

# Parsed and encoded by their own modules, which have their own row types.
OWN = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.ALTER_PARTITION,
}
# Requests that the broker itself sends.
ASKED = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.CREATE_TOPICS,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.WRITE_TXN_MARKERS,
}
HEAD = """# {what} by Kafka's field names, all versions in one; of older ones some fields are missing.
# Written by `make docs` (tools/message_types.py) from kio's schemas. Read by mypy alone.

import datetime as dt
import uuid
from collections.abc import Sequence
"""

NAMES_HEAD = '''"""The names of all fields that any version of a message has, by its API, kind and structure.

Written by `make docs` (tools/message_types.py) from kio's schemas. Loaded when a message is given a field
that its version lacks: all versions' classes would take a hundred times as long.
"""

from __future__ import annotations

from typing import Final

_ROWS: Final = """
'''
NAMES_TAIL = '''
"""
FIELD_NAMES: Final = dict(row.split(": ", 1) for row in _ROWS.replace("\\n    ", " ").strip().splitlines())
'''


@dataclasses.dataclass
class Entity:
    """A message, or a structure within one: the types of its fields, and the versions that have
    each field.
    """

    name: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    versions: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    of: list[int] = dataclasses.field(default_factory=list)


def entities_of(api: Api, kind: str) -> dict[str, Entity]:
    """The messages and structures by kio's names; nested structures come before those that contain them."""
    found: dict[str, Entity] = {}
    for version in range(api.min_version, api.max_version + 1):
        module = codec.schema(api.name, version, kind)  # type: ignore[arg-type]
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and dataclasses.is_dataclass(value)
                and getattr(value, "__module__", "") == module.__name__
            ):
                entity = found.setdefault(value.__name__, Entity(value.__name__))
                entity.of.append(version)
                for name, hint in typing.get_type_hints(value).items():
                    if name.startswith("__"):
                        continue
                    told = type_of(hint)
                    before = entity.fields.get(name, told)
                    entity.fields[name] = told if before == told.removesuffix(" | None") else before
                    entity.versions.setdefault(name, []).append(version)
    return found


def type_of(hint: object) -> str:
    """A field's type as written in a stub."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        (inner,) = (each for each in arguments if each is not type(None))
        return f"{type_of(inner)} | None"
    if origin is tuple:
        return f"Sequence[{type_of(arguments[0])}]"
    return name_of(hint)


def name_of(hint: object) -> str:
    """The Python name of a type. kio's types of numbers and names are subtypes or aliases of Python's."""
    while (base := getattr(hint, "__supertype__", None)) is not None:
        hint = base
    if not isinstance(hint, type):
        raise SystemExit(f"message_types: what is {hint!r}?")
    if dataclasses.is_dataclass(hint):
        return hint.__name__
    name = f"{hint.__module__}.{hint.__qualname__}"
    for pattern, told in (
        (r".*\.(i|u)\d+$|.*ErrorCode$", "int"),
        (r".*\.f64$", "float"),
        (r".*Timedelta$|^datetime\.timedelta$", "dt.timedelta"),
        (r".*(TZAware|datetime)$", "dt.datetime"),
        (r"^uuid\.UUID$", "uuid.UUID"),
        (r".*Records$", "bytes"),
    ):
        if re.fullmatch(pattern, name):
            return told
    for base_type in (bool, int, float, str, bytes):
        if issubclass(hint, base_type):
            return base_type.__name__
    raise SystemExit(f"message_types: what is {name}?")


def field_names() -> str:
    """The names of all fields of any version, for every message and structure."""
    rows = []
    for api in APIS.values():
        package = importlib.import_module(f"kio.schema.{api.name}")
        for kind in ("request", "response"):
            found: dict[str, set[str]] = {}
            versions = [int(version.name[1:]) for version in pkgutil.iter_modules(package.__path__)]
            for version in versions + [later for name, later in codec.LATER_THAN_KIO if name == api.name]:
                module = codec.schema(api.name, version, kind)
                for value in vars(module).values():
                    if isinstance(value, type) and value.__module__ == module.__name__:
                        found.setdefault(value.__name__, set()).update(vars(value)["__slots__"])
            rows += [f"{api.name} {kind} {name}: {' '.join(sorted(found[name]))}" for name in sorted(found)]
    lines = [textwrap.wrap(row, 108, subsequent_indent="        ") for row in sorted(rows)]
    return NAMES_HEAD + "\n".join(line for row in lines for line in row) + NAMES_TAIL


def written(kind: str, keys: Iterator[ApiKey]) -> str:
    """The stub of all messages of a kind."""
    found = {key: entities_of(APIS[key], kind) for key in keys}
    twice = Counter(name for entities in found.values() for name in entities)
    text = [HEAD.format(what=kind.title() + "s")]
    for entities in found.values():
        whole = next(name for name in entities if name.endswith(kind.title()))
        names = {
            name: whole.removesuffix(kind.title()) + name if twice[name] > 1 else name for name in entities
        }
        text += [one(entity, names) for entity in entities.values()]
    return "\n".join(text)


def one(entity: Entity, names: dict[str, str]) -> str:
    """The stub of one class."""
    lines = [f"class {names[entity.name]}:"]
    for name, told in entity.fields.items():
        said = re.sub(r"\w+", lambda match: names.get(match[0], match[0]), told)
        have = entity.versions[name]
        since = (
            ""
            if have == entity.of
            else f"  # {have[0]} to {have[-1]}"
            if have[-1] < entity.of[-1]
            else f"  # from {have[0]}"
        )
        lines.append(f"    {name}: {said}{since}")
    return "\n".join(lines if entity.fields else [*lines, "    pass"]) + "\n"


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is not as it would be written.")
def main(check: bool) -> None:
    """Writes the message types."""
    protocol = ROOT / "broker" / "protocol"
    texts = {
        protocol / "requests.pyi": written("request", map(ApiKey, sorted(APIS.keys() - OWN))),
        protocol / "responses.pyi": written("response", map(ApiKey, sorted(ASKED))),
        protocol / "field_names.py": field_names(),
    }
    for path, text in texts.items():
        if check and (not path.exists() or path.read_text() != text):
            sys.exit(f"{path.relative_to(ROOT)} is not up to date: run `make docs`")
        if not check:
            path.write_text(text)


if __name__ == "__main__":
    main()
