"""Valid input with some of its bytes changed, cut out, put in or repeated, as Hypothesis draws them or by a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from hypothesis import strategies as st

_EXTREMES = [
    struct.pack(">i", value) for value in (-1, 0, 1, (1 << 31) - 1, -(1 << 31), 1 << 24, 0x01010101)
] + [b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\xff\xff\xff\xff\x0f", b"\x00", b"\xff\xff", b"\x7f\xff"]


def edit(draw: st.DrawFn, data: bytearray, first: int = 0) -> None:
    """Makes one to four changes, none before ``first``."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(first, max(len(data) - 1, first)))
        match draw(st.sampled_from(["extreme", "extreme", "byte", "byte", "cut", "insert", "repeat"])):
            case "extreme":
                value = draw(st.sampled_from(_EXTREMES))
                data[at : at + len(value)] = value
            case "byte":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del data[at : at + draw(st.integers(1, 9))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=12))
            case _:
                data[at:at] = data[at:] * draw(st.integers(1, 50))


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[bytes], most: int) -> bytes:
    """One of the seeds, changed, and sometimes with a piece of another; at most so many bytes."""
    data = bytearray(draw(st.sampled_from(seeds)))
    if draw(st.integers(0, 3)) == 0:
        other = draw(st.sampled_from(seeds))
        at = draw(st.integers(0, len(data)))
        data[at:] = other[draw(st.integers(0, len(other))) :]
    edit(draw, data)
    return bytes(data[:most])


def scrambled(data: bytes, chance: random.Random, changes: int) -> bytes:
    """The input with so many changes; the same ones for the same seed."""
    found = bytearray(data)
    for _ in range(changes):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(3):
            case 0:
                found[at : at + 1] = bytes((chance.randrange(256),))
            case 1:
                del found[at : at + chance.randrange(1, 40)]
            case _:
                found[at:at] = chance.randbytes(chance.randrange(1, 40))
    return bytes(found)
