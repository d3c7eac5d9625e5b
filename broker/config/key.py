"""A row of the table of config keys, and the short names that the tables use."""

from __future__ import annotations

from enum import Enum
from typing import Final

from broker.config.types import Type, Value, parse
from broker.config.validators import Validator


class Importance(Enum):
    """Kafka's ranking of config keys."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Mode(Enum):
    """Whether Kafka lets the key change at run time (KIP-226), and at which level."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Use(Enum):
    """What Landline does with a key: use it, accept it with a warning, or refuse it when it is set."""

    USED = "used"
    ACCEPTED = "accepted"
    REFUSED = "refused"


class Key:
    """A row of the table of configs; Kafka's ConfigKey. ``default`` is parsed; None means unset. ``restart``:
    Landline uses a changed value only after a restart, whatever Kafka does. The tables own their rows, which
    never change.
    """

    __slots__ = ("default", "doc", "importance", "mode", "name", "restart", "type", "use", "valid")

    def __init__(
        self,
        name: str,
        type_: Type,
        default: Value,
        importance: Importance,
        *,
        doc: str,
        valid: Validator | None = None,
        mode: Mode = Mode.READ_ONLY,
        use: Use = Use.ACCEPTED,
        restart: bool = False,
    ) -> None:
        self.name = name
        self.type = type_
        self.default = default
        self.importance = importance
        self.valid = valid
        self.mode = mode
        self.use = use
        self.restart = restart
        self.doc = doc

    def __repr__(self) -> str:
        return f"<Key {self.name} {self.type.name}={self.default!r} {self.mode.value} {self.use.value}>"

    @property
    def sensitive(self) -> bool:
        """Whether it is a password, which neither DescribeConfigs nor a log shows."""
        return self.type is Type.PASSWORD

    @property
    def alterable(self) -> bool:
        """Whether a change at run time takes effect: Kafka's cluster-wide keys, if Landline uses them. Kafka's
        per-broker keys are listeners and security, and need a restart here.
        """
        return self.mode is Mode.CLUSTER_WIDE and self.use is Use.USED and not self.restart

    def parse(self, text: str) -> Value:
        """The checked value of ``text``. Raises ValueError with a message that says what was expected."""
        value = parse(self.type, text)
        complaint = self.valid.complaint(value) if self.valid else None
        if complaint:
            raise ValueError(complaint)
        return value


INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

BOOLEAN: Final = Type.BOOLEAN
STRING: Final = Type.STRING
INT: Final = Type.INT
SHORT: Final = Type.SHORT
LONG: Final = Type.LONG
DOUBLE: Final = Type.DOUBLE
LIST: Final = Type.LIST
CLASS: Final = Type.CLASS
PASSWORD: Final = Type.PASSWORD

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

READ_ONLY: Final = Mode.READ_ONLY
PER_BROKER: Final = Mode.PER_BROKER
CLUSTER_WIDE: Final = Mode.CLUSTER_WIDE

USED: Final = Use.USED
REFUSED: Final = Use.REFUSED
