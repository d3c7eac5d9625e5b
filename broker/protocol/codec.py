"""Encodes and decodes the messages of every API except Produce and Fetch, by kio. Only this module and its
helpers import kio.

Callers do not depend on versions. They read decoded entities by attribute (:func:`get` for fields that only
some versions have). They write plain mappings with Kafka's field names in snake_case. A field that only other
versions have is dropped. A field that no version has raises ValueError. An absent field gets Kafka's default.

Units: kio names ``*_ms`` durations without the suffix (``timeout``, ``max_wait``) and decodes them to
:class:`datetime.timedelta`; :func:`to_ms` converts them back. For encoding, pass integers in milliseconds
under kio's name.
"""

from __future__ import annotations

import io
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple, get_args

from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.fields import Fields
from broker.protocol.lengths import FIXED_BYTES, NO_ARRAYS, LengthCheck, Survey, element_type, length_check
from broker.protocol.listed import Listed
from broker.protocol.long_times import has_long_times, read_with_long_times
from broker.protocol.one_body import Addressed
from broker.protocol.pieces import Reader, entity_reader, read_in_pieces
from broker.protocol.primitives import INT32, write_uvarint
from broker.protocol.unknown_tags import without_unknown_tags
from broker.utils.lean_import import import_lean

Kind = Literal["request", "response"]
ZERO_UUID: Final = uuid.UUID(int=0)
# Versions that kio does not have.
LATER_THAN_KIO: Final = frozenset({("consumer_group_describe", 1), ("consumer_group_heartbeat", 1)})
_MAX_ERROR_TEXT: Final = 4096
# The most elements of a response, nested ones included: as many as for 200,000 partitions in topics of their
# own, with five replicas each. An element takes 50 to 250 bytes as an object, so a response takes at most 100
# MB, AlterPartition's 350 MB.
_MOST_ANSWERED: Final[Mapping[int, int]] = {
    ApiKey.ALTER_PARTITION: 1_400_000,  # with their ISRs
    ApiKey.METADATA: 3_500_000,  # with replicas, ISRs and offline replicas; only `may-stop` requests it
}
_MOST_ANSWERED_BY_OTHERS: Final = 400_000


def survey(api_key: int, version: int, body: memoryview, most: int) -> Survey:
    """Counts the elements of all arrays in a request, nested ones included. Returns ``most`` + 1 if there
    are more.

    Up to ``most`` elements, the arrays and strings are then checked; pass the result to :meth:`decode`. Only numbers
    are allocated. Raises :class:`ProtocolError` for a length that cannot be true, and for a string that is too long.
    """
    return _survey(api_key, version, "request", body, most)


def decode(
    api_key: int,
    version: int,
    kind: Kind,
    body: bytes | bytearray | memoryview,
    surveyed: Survey | None = None,
) -> Any:
    """Decodes one message body (no header) to its entity. ``surveyed`` is the result of :func:`survey`, if it
    was called.

    Raises :class:`ProtocolError` if the bytes are truncated or otherwise invalid, if a string is longer than Kafka
    reads, or if a response has too many elements. Bytes after a request are ignored, as Kafka does: librdkafka
    2.16 requests all topics by Metadata v12 with three extra bytes. Byte fields are copied, so do not use this for
    Produce requests or large Fetch responses.
    """
    view = memoryview(body).toreadonly()
    decoder = _decoder(api_key, version, kind)
    lengths = decoder.lengths
    if surveyed is None and lengths is not None and len(view) >= lengths.least_bytes:
        surveyed = _survey(api_key, version, kind, view, decoder.most)
        if surveyed.elements > decoder.most:
            raise ProtocolError(
                f"a {APIS[api_key].name} v{version} {kind} of more than {decoder.most} elements"
            )
    try:
        if surveyed is None or not surveyed.large:
            entity, size = decoder.read(view, 0)
        else:
            entity, size = read_in_pieces(decoder.entity_type, view, 0, len(view), surveyed.large)
    except KeyError as error:
        if "Unknown tagged field" not in str(error):
            raise _not_decoded(api_key, version, kind, error) from error
        return _decode_without_unknown(api_key, version, kind, view)
    except Exception as error:  # the decoder raises many kinds: parse, unicode, enum, overflow
        if kind == "response" or "timedelta" not in str(error) or not has_long_times(decoder.entity_type):
            raise _not_decoded(api_key, version, kind, error) from error
        return _decode_with_long_times(api_key, version, kind, view)
    if size != len(view) and kind == "response":
        raise ProtocolError(f"{len(view) - size} bytes left after a {APIS[api_key].name} v{version} {kind}")
    return entity


def _decode_without_unknown(api_key: int, version: int, kind: Kind, view: memoryview) -> Any:
    """Decodes a checked message that has unknown tagged fields. Raises :class:`ProtocolError`."""
    entity_type = _entity_type(api_key, version, kind)
    try:
        known = memoryview(without_unknown_tags(entity_type, view))
        large = _survey(api_key, version, kind, known, sys.maxsize - 1).large
        return read_in_pieces(entity_type, known, 0, len(known), large)[0]
    except Exception as error:
        raise _not_decoded(api_key, version, kind, error) from error


def _decode_with_long_times(api_key: int, version: int, kind: Kind, view: memoryview) -> Any:
    """Decodes a message with a duration that is too long for Python. Raises :class:`ProtocolError`."""
    large = _survey(api_key, version, kind, view, sys.maxsize - 1).large
    try:
        return read_with_long_times(_entity_type(api_key, version, kind), view, large)[0]
    except Exception as error:
        raise _not_decoded(api_key, version, kind, error) from error


def _not_decoded(api_key: int, version: int, kind: Kind, error: Exception) -> ProtocolError:
    return ProtocolError(f"not a {APIS[api_key].name} v{version} {kind}: {error!r}")


class _Decoder(NamedTuple):
    """The decoder of one kind of message. ``lengths`` are checked first; None if there is nothing to check."""

    entity_type: Any
    read: Reader
    lengths: LengthCheck | None
    most: int


@cache
def _decoder(api_key: int, version: int, kind: Kind) -> _Decoder:
    entity_type = _entity_type(api_key, version, kind)
    most = _MOST_ANSWERED.get(api_key, _MOST_ANSWERED_BY_OTHERS) if kind == "response" else sys.maxsize - 1
    return _Decoder(entity_type, entity_reader(entity_type), length_check(entity_type), most)


def encode(api_key: int, version: int, kind: Kind, values: Fields | bytes) -> bytes:
    """Encodes one message body (no header) from a mapping, nested mappings and iterables. A body that is
    encoded already stays as it is.

    Raises ValueError for a name that no version of the message has, which is a misspelling. An
    :class:`~broker.protocol.one_body.Addressed` message is encoded once for all its destinations. A
    :class:`~broker.protocol.listed.Listed` response is encoded around its encoded elements.
    """
    if type(values) is dict:  # as nearly always
        return _encode(api_key, version, kind, values)
    if isinstance(values, bytes):
        return values
    if isinstance(values, Addressed):
        position = _fixed_position(api_key, version, kind, values.name)
        return values.encoded(lambda shared: _encode(api_key, version, kind, shared), position)
    if isinstance(values, Listed):
        return encode_around(api_key, version, values.around, values.name, values.elements)
    return _encode(api_key, version, kind, values)


def _encode(api_key: int, version: int, kind: Kind, values: Fields) -> bytes:
    build, write = _encoder(api_key, version, kind)
    buffer = io.BytesIO()
    write(buffer, build(values))
    return buffer.getvalue()


def encode_element(api_key: int, version: int, name: str, values: Fields) -> bytes:
    """Encodes one element of a response's array ``name``, for :func:`encode_around`."""
    entity_type = _element_entity(api_key, version, name)
    buffer = io.BytesIO()
    _entity_writer(entity_type)(buffer, _builder(entity_type)(values))
    return buffer.getvalue()


def encode_end(api_key: int, version: int, name: str, values: Fields, last: str) -> bytes | None:
    """Encodes the end of an element of a response's array ``name``: its last array ``last`` and what follows.
    It is the same for all elements with the same ``values[last]``. None if the version has no such array.
    """
    if last not in _field_names(api_key, version, name):
        return None
    whole = encode_element(api_key, version, name, values)
    begin = len(_without_end(api_key, version, name, values, last))
    return whole[begin:]


def encode_element_with(
    api_key: int, version: int, name: str, values: Fields, *, last: str, end: bytes | None
) -> bytes:
    """Like :func:`encode_element`, with an ``end`` from :func:`encode_end`, which replaces that field
    of ``values``.
    """
    if end is None:
        return encode_element(api_key, version, name, values)
    return _without_end(api_key, version, name, values, last) + end


def _without_end(api_key: int, version: int, name: str, values: Fields, last: str) -> bytes:
    entity_type = _element_entity(api_key, version, name)
    if [field.name for field in fields(entity_type) if "tag" not in field.metadata][-1] != last:
        raise ValueError(f"{name} in {APIS[api_key].name} v{version} do not end with {last}")
    empty = encode_element(api_key, version, name, {**values, last: ()})
    # Cut off the length of the empty array, one byte if compact, and the empty tags.
    return empty[: -2 if entity_type.__flexible__ else -INT32.size]


def encode_around(api_key: int, version: int, values: Fields, name: str, elements: Sequence[bytes]) -> bytes:
    """Encodes a response whose array ``name``, empty in ``values``, gets already encoded elements. Raises
    ValueError if the fields after the array are not of fixed size.
    """
    around = encode(api_key, version, "response", values)
    behind, flexible = _behind(api_key, version, name)
    begin = len(around) - behind - (1 if flexible else INT32.size)
    count = write_uvarint(len(elements) + 1) if flexible else INT32.pack(len(elements))
    return b"".join((around[:begin], count, *elements, around[len(around) - behind :]))


def encode_error(api_key: int, version: int, error: Errors) -> bytes | None:
    """Encodes a response with only ``error``. None if this version has no error for the whole response."""
    known = {field.name: field for field in fields(_entity_type(api_key, version, "response"))}
    if "error_code" not in known:
        return None
    empty = {
        name: _nothing(field)
        for name, field in known.items()
        if _default(field) is MISSING and _is_asked(field)
    }
    return encode(api_key, version, "response", {**empty, "error_code": error})


def get(entity: Any, name: str, default: Any = None) -> Any:
    """The entity's field, or ``default`` if this version does not have it."""
    return getattr(entity, name, default)


def to_ms(duration: timedelta) -> int:
    """A decoded duration in milliseconds."""
    return duration // timedelta(milliseconds=1)


def schema(name: str, version: int, kind: Kind) -> ModuleType:
    """The module with the classes of an API's message in one version."""
    # kio.index would do this too, but importing its 3,000 lines of mapping is slow.
    root = "broker.protocol.later" if (name, version) in LATER_THAN_KIO else "kio.schema"
    return import_module(f"{root}.{name}.v{version}.{kind}")


@cache
def _entity_type(api_key: int, version: int, kind: Kind) -> Any:
    _kio_serial()
    module = schema(APIS[api_key].name, version, kind)
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(getattr(value, "__type__", None), "name", None) == kind
    )


@cache
def _fixed_position(api_key: int, version: int, kind: Kind, name: str) -> int:
    """The position of the int64 ``name``, the same in every such message. Raises ValueError if it depends on
    earlier fields.
    """
    position = 0
    for field in fields(_entity_type(api_key, version, kind)):
        if "tag" in field.metadata:
            continue  # tagged fields are at the end, whatever their order in the class
        kafka_type: str = field.metadata.get("kafka_type", "")
        _, is_array = element_type(field.type)
        if field.name == name and kafka_type == "int64" and not is_array:
            return position
        if is_array or kafka_type not in FIXED_BYTES:
            break
        position += FIXED_BYTES[kafka_type]
    raise ValueError(f"{name} has no fixed place in {APIS[api_key].name} v{version} {kind}")


@cache
def _element_entity(api_key: int, version: int, name: str) -> Any:
    entity_type = _entity_type(api_key, version, "response")
    return next(element_type(field.type)[0] for field in fields(entity_type) if field.name == name)


@cache
def _field_names(api_key: int, version: int, name: str) -> frozenset[str]:
    return frozenset(field.name for field in fields(_element_entity(api_key, version, name)))


@cache
def _behind(api_key: int, version: int, name: str) -> tuple[int, bool]:
    """The number of bytes after the array ``name`` in a response without tagged fields, and whether it
    is flexible.
    """
    entity_type = _entity_type(api_key, version, "response")
    flexible = bool(entity_type.__flexible__)
    plain = [field for field in fields(entity_type) if "tag" not in field.metadata]
    number = next(n for n, field in enumerate(plain) if field.name == name)
    after = plain[number + 1 :]
    if any(
        field.metadata.get("kafka_type") not in FIXED_BYTES or element_type(field.type)[1] for field in after
    ):
        raise ValueError(f"what follows {name} in {APIS[api_key].name} v{version} has no fixed size")
    return sum(FIXED_BYTES[field.metadata["kafka_type"]] for field in after) + flexible, flexible


@cache
def _entity_writer(entity_type: Any) -> Callable[[io.BytesIO, Any], None]:
    writer: Callable[[io.BytesIO, Any], None] = _kio_serial().entity_writer(entity_type)
    return writer


@cache
def _kio_serial() -> Any:
    return import_lean("kio.serial")  # imported late: not needed for a broker's first answer


def _survey(api_key: int, version: int, kind: Kind, view: memoryview, most: int) -> Survey:
    lengths = _decoder(api_key, version, kind).lengths
    if lengths is None or len(view) < lengths.least_bytes:
        return NO_ARRAYS
    try:
        return lengths.check(view, most)
    except ProtocolError as error:
        raise ProtocolError(f"not a {APIS[api_key].name} v{version} {kind}: {error}") from error


@cache
def _encoder(
    api_key: int, version: int, kind: Kind
) -> tuple[Callable[[Fields], Any], Callable[[io.BytesIO, Any], None]]:
    """The functions that build the entity and that write it."""
    entity_type = _entity_type(api_key, version, kind)
    return _builder(entity_type), _entity_writer(entity_type)


@cache
def _builder(entity_type: Any) -> Callable[[Fields], Any]:
    plan = [(f.name, _converter(f)) for f in fields(entity_type)]
    zeroes = [(f.name, default) for f in fields(entity_type) if (default := _default(f)) is not MISSING]
    known = {name for name, _ in plan}

    def build(values: Fields) -> Any:
        if isinstance(values, entity_type):
            return values
        built = {}
        for name, convert in plan:
            if name in values:
                built[name] = convert(values[name])
        if len(built) != len(values) and not known.issuperset(values):
            known.update(_of_other_versions(entity_type, values.keys() - known))
        if len(built) != len(plan):
            for name, zero in zeroes:
                if name not in built:
                    built[name] = zero
        return entity_type(**built)

    return build


def _of_other_versions(entity_type: Any, names: AbstractSet[str]) -> AbstractSet[str]:
    """Returns the names, which this version of the entity lacks. Raises ValueError if no version has one
    of them.
    """
    from broker.protocol.field_names import FIELD_NAMES

    api, _, kind = entity_type.__module__.split(".")[-3:]
    all_ = FIELD_NAMES[f"{api} {kind} {entity_type.__name__}"].split()
    if unknown := names - set(all_):
        raise ValueError(f"no version of {entity_type.__name__} has a field {', '.join(sorted(unknown))}")
    return names


_ZEROES: Final[Fields] = {
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "uuid": None,
}


def _default(field: Field[Any]) -> Any:
    """The default of an absent field: kio's default, or zero for durations and ids. Otherwise the caller must
    pass a value.
    """
    if field.default is not MISSING or field.default_factory is not MISSING:
        return MISSING
    return _ZEROES.get(field.metadata.get("kafka_type", ""), MISSING)


def _is_asked(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _nothing(field: Field[Any]) -> Any:
    _, is_array = element_type(field.type)
    if is_array:
        return ()
    if type(None) in get_args(field.type):
        return None
    return {"string": "", "bytes": b"", "bool": False}.get(field.metadata.get("kafka_type", ""), 0)


def _converter(field: Field[Any]) -> Callable[[Any], Any]:
    inner, is_array = element_type(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if field.name == "error_message":
        return _cut
    one = _builder(inner) if kafka_type is None else _primitive_converter(kafka_type)
    if is_array:
        return lambda values: None if values is None else tuple([one(value) for value in values])
    return lambda value: None if value is None else one(value)


def _primitive_converter(kafka_type: str) -> Callable[[Any], Any]:
    return _CONVERTERS.get(kafka_type, _same)


def _same(value: Any) -> Any:
    return value


def _cut(text: str | None) -> str | None:
    """Shortens an error's text, which may quote what a client sent. Before KIP-482 a string has at most
    32,767 bytes.
    """
    return text if text is None or len(text) <= _MAX_ERROR_TEXT else text[:_MAX_ERROR_TEXT] + "..."


def _duration(value: int | timedelta) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(milliseconds=value)


def _instant(value: int | datetime) -> datetime | None:
    if isinstance(value, datetime):
        return value
    return None if value < 0 else datetime.fromtimestamp(value / 1000, UTC)


def _error_code(value: int) -> Any:
    from kio.schema.errors import ErrorCode

    try:
        return ErrorCode(int(value))
    except ValueError:  # later than kio, which writes the value of any enum
        return Errors(value)


def _uuid(value: uuid.UUID) -> uuid.UUID | None:
    return None if value == ZERO_UUID else value


_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _instant,
    "error_code": _error_code,
    "uuid": _uuid,
}
