"""The file of ``landline.http.token.file``: one token on each line. Two of them serve while one replaces the other.

The broker compares with all of them, and a command sends the first one.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from broker.config.http_keys import TOKEN_FILE
from broker.config.problems import ConfigError, Problem

_MOST_BYTES: Final = 64 * 1024
_MOST_TOKENS: Final = 16
# What a Bearer token may be (RFC 6750), long enough that nobody guesses it.
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{16,512}=*")
Stamp = tuple[int, int, int]


class HttpTokens(NamedTuple):
    """The tokens of the file as it was at ``stamp``."""

    values: tuple[bytes, ...]
    stamp: Stamp


def stamp_of(path: str) -> Stamp | None:
    """What changes when the file does; None if it cannot be seen."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - for each request
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_tokens(path: str) -> HttpTokens:
    """Raises ConfigError, without a token in its message."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            stat = os.fstat(file.fileno())
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise _problem(f"{path} does not exist: create it, or correct the path") from error
    except OSError as error:
        raise _problem(f"{path} cannot be read: {error.strerror}; the broker's user needs to") from error
    if len(data) > _MOST_BYTES:
        raise _problem(f"{path} is larger than {_MOST_BYTES} bytes: no file of tokens is")
    lines = [line.strip() for line in data.split(b"\n")]
    for number, line in enumerate(lines, 1):
        if line and not _TOKEN.fullmatch(line):
            raise _problem(
                f"line {number} of {path} is no token: 16 to 512 letters, digits or -._~+/= are, such as "
                "`openssl rand -hex 32` writes"
            )
    values = tuple(line for line in lines if line)
    if not 1 <= len(values) <= _MOST_TOKENS:
        raise _problem(f"{path} has {len(values)} tokens: 1 to {_MOST_TOKENS} are expected, each on its line")
    return HttpTokens(values, (stat.st_mtime_ns, stat.st_size, stat.st_ino))


def _problem(message: str) -> ConfigError:
    return ConfigError([Problem(TOKEN_FILE, None, message)])
