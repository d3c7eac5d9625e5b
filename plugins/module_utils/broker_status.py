# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What a running broker's /status says, and which content of its properties file it goes by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def status_in(code: int, body: str) -> dict[str, Any] | None:
    """Returns the broker's state from the answer to /status; None when it has none."""
    try:
        found = json.loads(body) if code == 200 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def version_of(path: str) -> str | None:
    """Returns the version of a properties file, as the broker's config_file.py has it; None without a file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"


def loaded_version(status: Mapping[str, Any] | None) -> str | None:
    """Returns the version of the properties file that the broker goes by; None when it does not say."""
    return ((status or {}).get("config_file") or {}).get("version")


def is_written(path: str, properties: Mapping[str, str]) -> bool:
    """Returns whether a properties file says this, as the role's template writes it. Comments do not count."""
    try:
        told = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    # A value may have several lines, and one of YAML's blocks ends with a line break.
    wanted = "".join(f"{key}={value}\n" for key, value in properties.items())
    return _lines(told) == _lines(wanted)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]
