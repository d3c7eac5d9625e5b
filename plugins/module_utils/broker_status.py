"""What a running broker's /status says, and which content of its properties file it goes by."""

from __future__ import annotations

import hashlib
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


def sha256_of(path: str) -> str | None:
    """Returns the digest of a file; None when it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def loaded_sha256(status: Mapping[str, Any] | None) -> str | None:
    """Returns the digest of the properties file that the broker goes by; None when it does not say."""
    return ((status or {}).get("config_file") or {}).get("sha256")


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
