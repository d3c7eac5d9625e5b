"""An answer that lists, of which the elements of one array are encoded already: one by one, as they came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from broker.protocol.fields import Fields


class Listed(Fields):
    """The fields of a response, in which the array ``name`` has ``elements``, from
    :func:`broker.protocol.codec.encode_element`. What follows the array must be of fixed size.

    :func:`broker.protocol.codec.encode` puts them together. What an element was made of is long gone then, so that a
    long answer takes its bytes and not ten times as much in objects.
    """

    def __init__(self, fields: Fields, name: str, elements: Sequence[bytes]) -> None:
        self.around = {**fields, name: ()}
        self.name = name
        self.elements = elements

    def __getitem__(self, name: str) -> Any:
        return self.elements if name == self.name else self.around[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.around)

    def __len__(self) -> int:
        return len(self.around)
