"""Checks the lengths of arrays and strings in a message before kio decodes it.

kio's decoder allocates memory for as many elements as a length announces, and ends the process if there is
not enough memory. So a message of thirty bytes could stop the broker. This module walks the arrays in the raw
bytes first and allocates only numbers. The walk ends at the last array. It finds no other errors: the decoder
finds them.

kio also takes compact strings of any length, which Kafka does not: 32,767 bytes are the most in either encoding.
Only a message that is longer can have a longer one. So the walk goes on to the end of such a message.

Layouts come from kio's dataclasses (see :mod:`.codec`). Known tagged fields are walked too, because
those of responses contain arrays. Such a field must have exactly the size it announces: kio goes by its
content, and would continue reading at another position than the one checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, get_args, get_origin

from broker.protocol.errors import ProtocolError
from broker.protocol.fields import Entity
from broker.protocol.primitives import INT32, LONGEST_STRING, MAX_TAGS, read_uvarint, skip_tags, too_long

# As many elements are decoded at a time, during which no other thread runs: 0.2 ms, or 0.8 ms for ids.
PIECE: Final = 1_000
# Types of elements that are not cut into pieces: no message has arrays of them.
UNCUT_TYPES: Final = frozenset({"bytes", "records"})
_INT16: Final = Struct(">h")
_NEGATIVE_INT8: Final = 0x80
FIXED_BYTES: Final[Mapping[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


class LargeArray(NamedTuple):
    """An array of more than :data:`PIECE` elements, nested ones included. ``name`` is the field. ``start``,
    ``first`` and ``end`` are the positions of its length, of its first element and after it. ``cuts`` has the
    places where it may be cut: the number of elements before, and the position. ``within`` has the large
    arrays in its elements; each of those elements is a piece of its own.
    """

    name: str
    start: int
    first: int
    end: int
    elements: int
    cuts: Sequence[tuple[int, int]]
    within: Sequence[LargeArray] = ()


class Survey(NamedTuple):
    """The number of elements of all arrays in a message, nested ones included, and the large arrays among its
    own fields.
    """

    elements: int
    large: Sequence[LargeArray] = ()


NO_ARRAYS: Final = Survey(0)


class _Met:
    """The state of a walk: how many more elements are allowed, and the large arrays found, inner ones before
    outer ones.
    """

    __slots__ = ("large", "left")

    def __init__(self, most: int) -> None:
        self.left = most
        self.large: list[LargeArray] = []


# From a position in the bytes to the one after.
Walk = Callable[[memoryview, int, _Met], int]
Check = Callable[[memoryview, int], Survey]


class LengthCheck(NamedTuple):
    """The check of one kind of message, and the size below which a message needs none."""

    check: Check
    least_bytes: int


class _TooManyElements(Exception):
    """There are more elements than allowed."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A part of a message: its minimum size in bytes, and a function that walks over it. Without ``walk`` the
    size is fixed.
    """

    min_bytes: int
    walk: Walk | None = None
    has_array: bool = False


def length_check(entity_type: type[Entity]) -> LengthCheck | None:
    """The check of messages of a kio entity; None if it has neither arrays nor compact strings.

    The check stops when it has counted one element more than ``most``; what follows has not been checked. It
    raises :class:`ProtocolError` if an array announces more elements than there are bytes for, or is null
    where the protocol does not allow it (kio would pass on a None), and for a string that is too long.
    """
    shapes = _struct_shapes(entity_type)
    last = max((index for index, shape in enumerate(shapes) if shape.has_array), default=-1)
    flexible = bool(entity_type.__flexible__)
    if last < 0 and not flexible:
        return None
    to_last_array = _sequence(shapes[: last + 1])
    to_end = _sequence(shapes) if flexible else to_last_array

    def check(body: memoryview, most: int) -> Survey:
        met = _Met(most)
        walk = to_last_array if len(body) <= LONGEST_STRING else to_end
        try:
            walk(body, 0, met)
        except _TooManyElements:
            return Survey(most + 1)
        except (struct_error, IndexError) as error:
            raise ProtocolError(f"truncated: {error}") from error
        return Survey(most - met.left, met.large)

    return LengthCheck(check, 0 if last >= 0 else LONGEST_STRING + 1)


def _struct_shapes(entity_type: type[Entity]) -> list[_Shape]:
    flexible = bool(entity_type.__flexible__)
    shapes = [_field_shape(field, flexible) for field in fields(entity_type) if "tag" not in field.metadata]
    return [*shapes, _tags_shape(entity_type)] if flexible else shapes


def _tags_shape(entity_type: type[Entity]) -> _Shape:
    """The shape of a struct's tagged fields. Known ones are walked."""
    known = {
        field.metadata["tag"]: _field_shape(field, flexible=True)
        for field in fields(entity_type)
        if "tag" in field.metadata
    }
    if not known:
        return _Shape(1, _skip_tags)

    def walk(view: memoryview, position: int, met: _Met) -> int:
        count, position = read_uvarint(view, position)
        if count > MAX_TAGS:
            raise ProtocolError(f"{count} tagged fields")
        for _ in range(count):
            tag, position = read_uvarint(view, position)
            size, position = read_uvarint(view, position)
            end = position + size
            if end > len(view):
                raise ProtocolError(
                    f"tagged field {tag} of {size} bytes announced at {position} of {len(view)}"
                )
            shape = known.get(tag)
            met_before = len(met.large)
            if shape is not None and _end_of(shape, view[:end], position, met) != end:
                raise ProtocolError(f"tagged field {tag} does not take the {size} bytes that it announces")
            del met.large[met_before:]  # a tagged field cannot be cut, because its size is stored beside it
            position = end
        return position

    return _Shape(1, walk, any(shape.has_array for shape in known.values()))


def _end_of(shape: _Shape, view: memoryview, position: int, met: _Met) -> int:
    return position + shape.min_bytes if shape.walk is None else shape.walk(view, position, met)


def _field_shape(field: Field[Any], flexible: bool) -> _Shape:
    inner, is_array = element_type(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type is None:
        element = _together(_struct_shapes(inner))
    elif kafka_type in FIXED_BYTES:
        element = _Shape(FIXED_BYTES[kafka_type])
    elif flexible:
        element = _Shape(1, _skip_compact_string if kafka_type == "string" else _skip_compact)
    elif kafka_type == "string":
        element = _Shape(2, _skip_string)
    else:
        element = _Shape(4, _skip_bytes)
    nullable = type(None) in get_args(field.type)
    if is_array:
        return _array(field.name, element, flexible, nullable, cut=kafka_type not in UNCUT_TYPES)
    if kafka_type is None and nullable and "tag" not in field.metadata:
        element = _nullable(element)
    return _uncut(element) if element.has_array else element


def _nullable(struct: _Shape) -> _Shape:
    """The shape of a struct that may be null, with an int8 before it: negative for null (KIP-893)."""

    def walk(view: memoryview, position: int, met: _Met) -> int:
        is_null = view[position] >= _NEGATIVE_INT8
        return position + 1 if is_null else _end_of(struct, view, position + 1, met)

    return _Shape(1, walk, struct.has_array)


def _uncut(struct: _Shape) -> _Shape:
    """The shape of a struct that is not an array element. Its large arrays belong to another entity, so they
    are not reported.
    """

    def walk(view: memoryview, position: int, met: _Met) -> int:
        known = len(met.large)
        position = _end_of(struct, view, position, met)
        del met.large[known:]
        return position

    return _Shape(struct.min_bytes, walk, has_array=True)


def element_type(annotation: Any) -> tuple[Any, bool]:
    """The element type of ``tuple[X, ...]``, ``X | None`` or both, and whether it is an array."""
    is_array = False
    while (origin := get_origin(annotation)) is not None:
        is_array = is_array or origin is tuple
        annotation = next(arg for arg in get_args(annotation) if arg is not type(None))
    return annotation, is_array


def _together(shapes: Sequence[_Shape]) -> _Shape:
    min_bytes = sum(shape.min_bytes for shape in shapes)
    if all(shape.walk is None for shape in shapes):
        return _Shape(min_bytes)
    return _Shape(min_bytes, _sequence(shapes), any(shape.has_array for shape in shapes))


def _sequence(shapes: Sequence[_Shape]) -> Walk:
    """A single walk over all shapes; adjacent shapes of fixed size are one step."""
    steps: list[tuple[int, Walk]] = []
    fixed = 0
    for shape in shapes:
        if shape.walk is None:
            fixed += shape.min_bytes
        else:
            steps.append((fixed, shape.walk))
            fixed = 0

    def walk(view: memoryview, position: int, met: _Met) -> int:
        for before, step in steps:
            position = step(view, position + before, met)
        return position + fixed

    return walk


def _array(name: str, element: _Shape, flexible: bool, nullable: bool, *, cut: bool) -> _Shape:
    size, walk = element.min_bytes, element.walk

    def array(view: memoryview, position: int, met: _Met) -> int:
        start = position
        if flexible:
            count, position = read_uvarint(view, position)
            count -= 1
        else:
            (count,) = INT32.unpack_from(view, position)
            position += 4
        if count < 0 and not (nullable and count == -1):
            raise ProtocolError(f"{name} must be an array, has length {count}")
        if count <= 0:
            return position
        if count * size > len(view) - position:
            raise ProtocolError(
                f"{name} of {count} elements announced where {max(len(view) - position, 0)} bytes are left"
            )
        met.left -= count
        if met.left < 0:
            raise _TooManyElements
        if walk is None:
            end = position + count * size
            if cut and count > PIECE:
                cuts = [(at, position + at * size) for at in range(PIECE, count, PIECE)]
                met.large.append(LargeArray(name, start, position, end, count, cuts))
            return end
        first, before, known = position, met.left, len(met.large)
        cuts, due, seen = [], PIECE - before, known
        for number in range(1, count + 1):
            begun = position
            position = walk(view, position, met)
            if number - met.left >= due:
                if len(met.large) > seen:
                    seen = len(met.large)
                    cuts.append((number - 1, begun))
                cuts.append((number, position))
                due = number - met.left + PIECE
        if cut and count + before - met.left > PIECE:
            met.large[known:] = [
                LargeArray(name, start, first, position, count, cuts, tuple(met.large[known:]))
            ]
        return position

    return _Shape(1 if flexible else 4, array, has_array=True)


def _skip_tags(view: memoryview, position: int, _met: _Met) -> int:
    return position + 1 if view[position] == 0 else skip_tags(view, position)


def _skip_compact(view: memoryview, position: int, _met: _Met) -> int:
    size, position = read_uvarint(view, position)
    return position + size - 1 if size else position


def _skip_compact_string(view: memoryview, position: int, _met: _Met) -> int:
    size = view[position]
    if size < 0x80:  # nearly always
        return position + (size or 1)
    size, position = read_uvarint(view, position)
    if size > LONGEST_STRING + 1:
        raise too_long(size - 1)
    return position + size - 1 if size else position


def _skip_string(view: memoryview, position: int, _met: _Met) -> int:
    (size,) = _INT16.unpack_from(view, position)
    return position + 2 + max(int(size), 0)


def _skip_bytes(view: memoryview, position: int, _met: _Met) -> int:
    (size,) = INT32.unpack_from(view, position)
    return position + 4 + max(int(size), 0)
