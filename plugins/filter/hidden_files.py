# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Names the files in a broker's properties that its unit does not see. ProtectHome and PrivateTmp hide them, even where
the brokers' user may read them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = ("/tmp", "/var/tmp", "/home", "/root", "/run/user")  # noqa: S108
# Keys whose value is a file that the broker reads, and Kerberos keys in the settings of a login.
_FILE_KEYS = (".location", ".file")
_KEY_TAB = re.compile(r"""keyTab\s*=\s*["']?(/[^"'\s;]+)""", re.IGNORECASE)


def hidden_files(properties: Mapping[str, Any]) -> list[str]:
    """Returns each key with such a file as its value, as C(key=file)."""
    return [
        f"{key}={path}"
        for key, value in sorted(properties.items())
        for path in _files_of(key, str(value or "").strip())
        if any(path.startswith(f"{top}/") for top in HIDDEN)
    ]


def _files_of(key: str, value: str) -> Iterator[str]:
    if key.endswith(_FILE_KEYS):
        yield value
    elif key.endswith("sasl.jaas.config"):
        yield from _KEY_TAB.findall(value)


def broker_hidden_files(brokers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns what a host's brokers have of that, from the result of C(broker_instances)."""
    return sorted({each for broker in brokers for each in hidden_files(broker["properties"])})


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"broker_hidden_files": broker_hidden_files}
