"""Caches encoded configs, which stand at the end of a response's elements, for all elements with the
same configs.

Most topics have the broker's defaults, and a broker's configs change only when somebody changes them.
Collecting and encoding them takes half a millisecond for a topic and seven for a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from sys import getsizeof
from typing import Final, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.fields import Fields

_MOST: Final = 64
_MOST_BYTES: Final = 256 * 1024  # of one entry and its key: a topic's overrides may be long
_LAST: Final = "configs"


class Told(NamedTuple):
    """An encoded element, and the number of its configs."""

    element: bytes
    number: int


class _EncodedConfigs(NamedTuple):
    """Encoded configs, None for a version whose elements have none, and their number."""

    end: bytes | None
    number: int


class ToldConfigs:
    """The cache for the elements of the array ``name`` of an API's responses. It starts empty with each new
    BrokerConfig. Usable from any thread: a lost entry is only encoded again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: tuple[BrokerConfig | None, dict[Hashable, _EncodedConfigs]] = (None, {})

    def element(
        self,
        request: Request,
        values: Fields,
        config: BrokerConfig,
        key: Hashable,
        make: Callable[[], Sequence[Fields]],
    ) -> Told:
        """An encoded element of ``values`` and the configs that ``make`` returns. ``key`` is all that these
        depend on besides ``config``; None if they must not be cached.
        """
        api_key, version = request.api_key, request.api_version
        of, kept = self._kept
        known = kept.get((version, key)) if of is config else None
        if known is None:
            configs = make()
            end = codec.encode_end(api_key, version, self._name, {**values, _LAST: configs}, _LAST)
            known = _EncodedConfigs(end, len(configs))
            if key is not None:
                self._keep(config, (version, key), known)
        values = {**values, _LAST: ()}
        return Told(
            codec.encode_element_with(api_key, version, self._name, values, last=_LAST, end=known.end),
            known.number,
        )

    def _keep(self, config: BrokerConfig, key: Hashable, made: _EncodedConfigs) -> None:
        if len(made.end or b"") + _bytes_of(key) > _MOST_BYTES:
            return
        of, kept = self._kept
        if of is not config or len(kept) >= _MOST:
            kept = {}
            self._kept = (config, kept)
        kept[key] = made


def _bytes_of(key: object) -> int:
    return sum(map(_bytes_of, key)) if isinstance(key, tuple) else getsizeof(key)
