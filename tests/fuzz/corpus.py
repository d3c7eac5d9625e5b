"""The inputs that are kept: a text file for each target, one input in base64 a line, so that a diff shows what came."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")


def load(target: str, directory: Path = CORPUS) -> Sequence[bytes]:
    """The kept inputs of a target; none where there is no file."""
    path = directory / f"{target}.txt"
    return [base64.b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def save(target: str, inputs: Iterable[bytes], directory: Path = CORPUS) -> None:
    """Replaces the kept inputs, the shortest first."""
    lines = [
        base64.b64encode(data).decode() for data in sorted(set(inputs), key=lambda data: (len(data), data))
    ]
    (directory / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines))


def unpack(inputs: Iterable[bytes], directory: Path) -> None:
    """Each input as a file, as libFuzzer has them."""
    directory.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (directory / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(directory: Path) -> Sequence[bytes]:
    """The inputs in a directory of libFuzzer's."""
    return [path.read_bytes() for path in directory.iterdir()]
