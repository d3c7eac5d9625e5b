"""Requests of any API with arrays of any number of smallest elements: the most work that a byte can request.

Layouts are kio's dataclasses. An array is named by its path, such as ``("topics", "partitions")``. Each
array on the way has one element, the others have none, and the last has ``count``, each as short as its
version allows.
"""

from __future__ import annotations

import itertools
import string
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, Final, get_args

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.lengths import element_type
from broker.protocol.primitives import INT32, write_uvarint
from broker.server.admission import RULES

Path = tuple[str, ...]
Fields = Mapping[str, Any]

FOR_BROKERS: Final = frozenset(key for key, rule in RULES.items() if rule.for_brokers)
"""APIs for brokers only: a stranger's request is not decoded."""


_LETTERS: Final = 3
_ALPHABET: Final = string.ascii_letters.encode() + string.digits.encode() + b"-_"
_MARK: Final = "@"
_MARKS: Final[Mapping[str, tuple[Any, bytes]]] = {
    "string": (_MARK * _LETTERS, _MARK.encode() * _LETTERS),
    "uuid": (uuid.UUID(bytes=_MARK.encode() * 16), _MARK.encode() * 16),
    "int32": (INT32.unpack(_MARK.encode() * 4)[0], _MARK.encode() * 4),
}


def array_paths(api_key: ApiKey, version: int) -> list[Path]:
    """All arrays of a request, nested ones after those that contain them; without tagged fields."""
    return _paths(_request_type(api_key, version), ())


def body(
    api_key: ApiKey,
    version: int,
    path: Path,
    count: int,
    *,
    given: Fields,
    element: Fields | None = None,
    distinct: bool = False,
) -> bytes:
    """A request's body with ``count`` elements at ``path``.

    Fields to use instead of the shortest, by their names: ``given`` for the request and for the elements on
    the way to the array, ``element`` for the array's own elements. ``distinct``: no two elements are alike in
    the field of :func:`named_by`.
    """
    name = named_by(api_key, version, path) if distinct else None
    if distinct and name is None:
        raise ValueError(f"elements of {APIS[api_key].name} v{version} {path} have no names")
    chosen = {**(element or {}), **({} if name is None else {name.name: name.mark})}
    none, one = (_encoded(api_key, version, path, number, given=given, element=chosen) for number in (0, 1))
    at = next(index for index, (left, right) in enumerate(zip(none, one, strict=False)) if left != right)
    encoded = one[at + 1 : at + 1 + len(one) - len(none)]
    flexible = version >= APIS[api_key].flexible_from
    begin = at if flexible else at + 1 - INT32.size
    length = write_uvarint(count + 1) if flexible else INT32.pack(count)
    elements = encoded * count
    if name is not None:
        before, after = encoded.split(name.encoded_mark)
        elements = b"".join(before + each + after for each in name.names(count))
    return b"".join((none[:begin], length, elements, none[at + 1 :]))


@dataclass(frozen=True, slots=True)
class Naming:
    """The difference between elements: the field ("" if it has no name), and its value, which
    others replace.
    """

    name: str
    mark: Any
    encoded_mark: bytes

    def names(self, count: int) -> Iterator[bytes]:
        """This many different values of the field, encoded, as long as the mark."""
        if len(self.encoded_mark) == INT32.size:
            return (INT32.pack(number) for number in range(count))
        filler = self.encoded_mark[_LETTERS:]
        return (
            bytes(each) + filler
            for each in itertools.islice(itertools.product(_ALPHABET, repeat=_LETTERS), count)
        )


def named_by(api_key: ApiKey, version: int, path: Path) -> Naming | None:
    """The field by which an array's elements may differ: the first text, id or number."""
    known = element_fields(api_key, version, path)
    return next(
        (
            Naming(name, *_MARKS[wanted])
            for wanted in _MARKS
            for name, kafka_type in known.items()
            if kafka_type == wanted
        ),
        None,
    )


def element_fields(api_key: ApiKey, version: int, path: Path) -> Mapping[str, str]:
    """The fields of an array's elements, except arrays: Kafka's types by the fields' names.

    The name is "" if an element is only a value.
    """
    entity_type, field = _request_type(api_key, version), None
    for name in path:
        field = next(each for each in fields(entity_type) if each.name == name)
        entity_type, _ = element_type(field.type)
    assert field is not None
    if not _is_entity(entity_type):
        return {"": field.metadata["kafka_type"]}
    return {each.name: each.metadata["kafka_type"] for each in _untagged(entity_type) if _is_plain(each)}


def of_request(api_key: ApiKey, version: int, given: Fields) -> dict[str, Any]:
    """Those fields that the request itself has in this version."""
    return _own(_request_type(api_key, version), given)


def _own(entity_type: Any, given: Fields) -> dict[str, Any]:
    return {each.name: given[each.name] for each in fields(entity_type) if each.name in given}


def _is_plain(field: Field[Any]) -> bool:
    inner, is_array = element_type(field.type)
    return not is_array and not _is_entity(inner)


def _encoded(
    api_key: ApiKey, version: int, path: Path, count: int, *, given: Fields, element: Fields
) -> bytes:
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
        return {**{each.name: _shortest(each) for each in _untagged(inner)}, **_own(inner, chosen)}
    return chosen.get("", _zero(field))


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
    module = codec.schema(APIS[api_key].name, version, "request")
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(getattr(value, "__type__", None), "name", None) == "request"
    )
