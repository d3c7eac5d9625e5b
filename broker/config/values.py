"""Typed access to config values by Kafka's names: the set value, or else the table's default."""

from __future__ import annotations

import builtins  # the getters have the names of the types they return
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS
from broker.config.types import Value, render

_UNSET: Final = object()
T = TypeVar("T")


class ConfigValues:
    """Configs by Kafka's names, each with its type; Kafka's AbstractConfig. A key that was not set has the
    table's default. ``set_values`` has the keys that were set, parsed and in force.
    """

    def __init__(self, set_values: Mapping[builtins.str, Value]) -> None:
        self.set_values = set_values

    def value(self, key: builtins.str) -> Any:
        """The value in force. Raises KeyError for an unknown name."""
        value = self.set_values.get(key, _UNSET)
        if value is not _UNSET:
            return value
        known = BROKER_KEYS.get(key) or DYNAMIC_ONLY_KEYS[key]
        return known.default

    def int(self, key: builtins.str) -> builtins.int:
        return self._typed(key, builtins.int)

    def opt_int(self, key: builtins.str) -> builtins.int | None:
        return None if self.value(key) is None else self.int(key)

    def float(self, key: builtins.str) -> builtins.float:
        return self._typed(key, builtins.float)

    def bool(self, key: builtins.str) -> builtins.bool:
        return self._typed(key, builtins.bool)

    def str(self, key: builtins.str) -> builtins.str:
        return self._typed(key, builtins.str)

    def opt_str(self, key: builtins.str) -> builtins.str | None:
        """The text, or None; also None for an empty text."""
        return self.value(key) or None

    def list(self, key: builtins.str) -> builtins.list[builtins.str]:
        return builtins.list(self._typed(key, builtins.tuple))

    def _typed(self, key: builtins.str, kind: type[T]) -> T:
        value = self.value(key)
        if type(value) is kind:
            return value
        raise TypeError(f"{key} is {value!r}, no {kind.__name__}")

    def text(self, key: builtins.str) -> builtins.str | None:
        """The value in force as Kafka writes it; None if unset."""
        return render(self.value(key))
