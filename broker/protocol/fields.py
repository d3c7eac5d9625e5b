"""Types of messages before encoding and after decoding. Fields have Kafka's names, as kio spells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, ClassVar, Protocol

# A message to encode, or a part of one.
Fields = Mapping[str, Any]


class Entity(Protocol):
    """A decoded message, or a part of one: kio's dataclass for its version."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __flexible__: ClassVar[bool]
