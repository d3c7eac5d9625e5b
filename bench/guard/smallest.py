"""Requests whose arrays have as many smallest elements as one likes, of any API: what a byte can ask for most of.

Layouts are kio's dataclasses. An array is named by its path, as ``("topics", "partitions")``: there is one element in
each array on the way, none in the others, and the last has ``count`` of them, each as short as its version allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from importlib import import_module
from typing import Any, Final, get_args

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.framing import INT32, write_uvarint
from broker.protocol.lengths import element_type

Path = tuple[str, ...]
Fields = Mapping[str, Any]

FOR_BROKERS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""What only brokers may ask: no stranger's request is decoded."""


def array_paths(api_key: ApiKey, version: int) -> list[Path]:
    """All arrays of a request, those in elements behind those that hold them; without tagged fields."""
    return _paths(_request_type(api_key, version), ())


def body(
    api_key: ApiKey, version: int, path: Path, count: int, given: Fields, element: Fields | None = None
) -> bytes:
    """A request's body with ``count`` elements at ``path``.

    Instead of the shortest, fields by their names: ``given`` of the request and of the elements on the way to the
    array, ``element`` of the array's own.
    """
    none, one = (_encoded(api_key, version, path, number, given, element or {}) for number in (0, 1))
    at = next(index for index, (left, right) in enumerate(zip(none, one, strict=False)) if left != right)
    encoded = one[at + 1 : at + 1 + len(one) - len(none)]
    flexible = version >= APIS[api_key].flexible_from
    begin = at if flexible else at + 1 - INT32.size
    length = write_uvarint(count + 1) if flexible else INT32.pack(count)
    return b"".join((none[:begin], length, encoded * count, none[at + 1 :]))


def _encoded(api_key: ApiKey, version: int, path: Path, count: int, given: Fields, element: Fields) -> bytes:
    values = _fields(_request_type(api_key, version), path, [element] * count, given)
    return codec.encode(api_key, version, "request", values)


def _paths(entity_type: Any, way: Path) -> list[Path]:
    found: list[Path] = []
    for field in _untagged(entity_type):
        inner, is_array = element_type(field.type)
        here = (*way, field.name)
        if is_array:
            found.append(here)
        if _is_entity(inner):
            found += _paths(inner, here)
    return found


def _fields(
    entity_type: Any, path: Sequence[str], elements: Sequence[Fields], given: Fields
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in _untagged(entity_type):
        inner, is_array = element_type(field.type)
        if not path or field.name != path[0]:
            values[field.name] = given[field.name] if field.name in given else _shortest(field)
        elif path[1:]:
            within = _fields(inner, path[1:], elements, given)
            values[field.name] = [within] if is_array else within
        else:
            values[field.name] = [_element(field, each) for each in elements]
    return values


def _element(field: Field[Any], chosen: Fields) -> Any:
    inner, _ = element_type(field.type)
    if _is_entity(inner):
        return {**{each.name: _shortest(each) for each in _untagged(inner)}, **chosen}
    return _zero(field)


def _shortest(field: Field[Any]) -> Any:
    inner, is_array = element_type(field.type)
    if is_array:
        return ()
    if _is_entity(inner):
        return {each.name: _shortest(each) for each in _untagged(inner)}
    if type(None) in get_args(field.type) and field.metadata["kafka_type"] in {"string", "bytes", "records"}:
        return None
    return _zero(field)


def _zero(field: Field[Any]) -> Any:
    kafka_type = field.metadata["kafka_type"]
    if kafka_type == "uuid":
        return codec.ZERO_UUID
    return {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0}.get(kafka_type, 0)


def _untagged(entity_type: Any) -> list[Field[Any]]:
    return [field for field in fields(entity_type) if "tag" not in field.metadata]


def _is_entity(inner: Any) -> bool:
    return hasattr(inner, "__dataclass_fields__")


def _request_type(api_key: ApiKey, version: int) -> Any:
    module = import_module(f"kio.schema.{APIS[api_key].name}.v{version}.request")
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(getattr(value, "__type__", None), "name", None) == "request"
    )
