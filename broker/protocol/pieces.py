"""Decodes a large message in pieces, because kio's native decoder holds the interpreter lock until it
is done.

A hundred thousand elements take 12 to 80 ms, during which no other thread of the broker runs. So a message
with large arrays (:class:`~broker.protocol.lengths.LargeArray`) is decoded with empty arrays instead, and
their elements are decoded piece by piece. Other threads run between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import chain, pairwise
from typing import Any, Final

from broker.protocol.fields import Entity
from broker.protocol.lengths import LargeArray, element_type
from broker.protocol.primitives import INT32, write_uvarint
from broker.utils.lean_import import import_lean

Reader = Callable[[memoryview, int], tuple[Any, int]]
# A piece is copied to put its length in front. A larger piece is decoded one element at a time.
MOST_COPIED: Final = 256 * 1024


def read_in_pieces(
    entity_type: type[Entity], view: memoryview, begin: int, end: int, large: Sequence[LargeArray]
) -> tuple[Any, int]:
    """Decodes the entity at ``begin``; returns it and its size. ``large`` are the large arrays among its
    own fields.

    Raises what kio raises.
    """
    if not large:
        entity, size = entity_reader(entity_type)(view[begin:end], 0)
        return entity, size
    flexible = bool(entity_type.__flexible__)
    empty = _length(0, flexible=flexible)
    around = bytearray()
    at = begin
    for array in large:
        around += view[at : array.start]
        around += empty
        at = array.end
    around += view[at:end]
    entity, size = entity_reader(entity_type)(memoryview(bytes(around)), 0)
    arrays = {array.name: tuple(_elements(entity_type, view, array, flexible=flexible)) for array in large}
    return replace(entity, **arrays), size + sum(each.end - each.start - len(empty) for each in large)


def _elements(entity_type: type[Entity], view: memoryview, array: LargeArray, *, flexible: bool) -> list[Any]:
    found: list[Any] = []
    read, read_one = _array_readers(entity_type, array.name)
    ends = chain([(0, array.first)], array.cuts, [(array.elements, array.end)])
    inner = iter(array.within)
    next_inner = next(inner, None)
    for (number, start), (next_number, end) in pairwise(ends):
        if number == next_number:
            continue
        if next_inner is not None and next_inner.start < end:
            within = []
            while next_inner is not None and next_inner.start < end:
                within.append(next_inner)
                next_inner = next(inner, None)
            element, _ = read_in_pieces(_inner_type(entity_type, array.name), view, start, end, within)
            found.append(element)
        elif end - start > MOST_COPIED:
            position = start
            for _ in range(next_number - number):
                element, size = read_one(view, position)
                found.append(element)
                position += size
        else:
            piece = (_length(next_number - number, flexible=flexible), view[start:end])
            elements, _ = read(memoryview(b"".join(piece)), 0)
            found += elements
    return found


def _length(count: int, *, flexible: bool) -> bytes:
    return write_uvarint(count + 1) if flexible else INT32.pack(count)


@cache
def entity_reader(entity_type: type[Entity]) -> Reader:
    # Imported late: not needed for a broker's first answer.
    reader: Reader = import_lean("kio.serial").entity_reader(entity_type)
    return reader


@cache
def _array_readers(entity_type: type[Entity], name: str) -> tuple[Reader, Reader]:
    """A reader of a whole array with its length, and a reader of one element."""
    readers = import_lean("kio.serial.readers")
    flexible = bool(entity_type.__flexible__)
    kafka_type = _field(entity_type, name).metadata.get("kafka_type")
    if kafka_type is None:
        one = entity_reader(_inner_type(entity_type, name))
    elif kafka_type == "string":
        one = readers.read_compact_string if flexible else readers.read_legacy_string
    else:
        one = getattr(readers, "read_boolean" if kafka_type == "bool" else f"read_{kafka_type}")
    of_many = readers.compact_array_reader if flexible else readers.legacy_array_reader
    return of_many(one), one


def _inner_type(entity_type: type[Entity], name: str) -> Any:
    inner, _ = element_type(_field(entity_type, name).type)
    return inner


def _field(entity_type: type[Entity], name: str) -> Any:
    return next(field for field in fields(entity_type) if field.name == name)
