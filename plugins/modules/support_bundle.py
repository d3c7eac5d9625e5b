#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the archives of several hosts into one, with a manifest. Runs on the control node."""

from __future__ import annotations

DOCUMENTATION = """
module: support_bundle
short_description: Put the hosts' support archives into one
description:
  - Puts the archives of several hosts into one, with a manifest. Runs on the control node.
author: The Landline authors (!UNKNOWN)
options:
  dest:
    description: The bundle, a tar.gz. It is readable only by its owner.
    type: path
    required: true
  hosts:
    description:
      - What came of each host, by its name. state is collected, failed or unreachable, why says why it is not
        collected, archive is the host's archive on this machine, errors has what could not be had of it.
    type: dict
    required: true
  about:
    description: What the manifest says besides.
    type: dict
    default: {}
"""
EXAMPLES = """
- name: Make the bundle
  landline.cluster.support_bundle:
    dest: build/support/bundle.tar.gz
    hosts:
      h1: {state: collected, archive: /tmp/h1.tar.gz, errors: {}}
      h2: {state: unreachable, why: no route to host}
"""
RETURN = """
bytes:
  description: Size of the bundle.
  type: int
  returned: success
missing:
  description: Hosts that are not in it, each with the reason.
  type: dict
  returned: success
"""

import io
import json
import os
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# More than support_collect writes of one file.
MOST_BYTES = 64 << 20


class ArchiveError(Exception):
    """A host's archive cannot be read."""


def members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yields the regular files of a host's archive. A host is not trusted: others are left out. Raises ArchiveError."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.isreg() and member.size > MOST_BYTES:
                    raise ArchiveError(f"its file {member.name} has {member.size} bytes")
                file = tar.extractfile(member) if member.isreg() else None
                if file is not None:
                    yield member, file.read()
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:  # it is cut off, or no archive
        raise ArchiveError(f"its archive cannot be read: {error}") from error


def bundled(dest: Path, hosts: dict[str, dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    """Writes the bundle and returns its manifest. Everything in it is below one directory."""
    root = dest.name.removesuffix(".tar.gz")
    made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    manifest: dict[str, Any] = {"made_at": made_at, **about, "hosts": {}}
    partial = dest.with_name(f".{dest.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for host, found in sorted(hosts.items()):
                row = {key: found[key] for key in ("state", "why", "errors") if found.get(key)}
                if found["state"] == "collected":
                    row["files"] = {}
                    try:
                        add_host(tar, f"{root}/{host}", Path(found["archive"]), row["files"])
                    except ArchiveError as error:
                        row |= {"state": "failed", "why": str(error)}
                manifest["hosts"][host] = row
            add(tar, f"{root}/manifest.json", json.dumps(manifest, indent=1).encode())
        partial.replace(dest)
    except BaseException:
        partial.unlink()
        raise
    return manifest


def add_host(tar: tarfile.TarFile, root: str, archive: Path, sizes: dict[str, int]) -> None:
    """Adds a host's files, and their sizes to ``sizes``. Raises ArchiveError; then the first of them are there."""
    for member, data in members(archive):
        parts = [part for part in Path(member.name).parts if part not in ("/", "..", ".")]
        name = "/".join(parts)
        add(tar, f"{root}/{name}", data)
        sizes[name] = len(data)


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
    tar.addfile(info, io.BytesIO(data))


def main() -> None:
    module = AnsibleModule(
        {
            "dest": {"type": "path", "required": True},
            "hosts": {"type": "dict", "required": True},
            "about": {"type": "dict", "default": {}},
        },
        supports_check_mode=False,
    )
    dest = Path(module.params["dest"])
    try:
        manifest = bundled(dest, module.params["hosts"], module.params["about"])
    except (OSError, tarfile.TarError) as error:
        module.fail_json(msg=f"{dest} cannot be made: {error}")
    missing = {
        host: row.get("why", "") for host, row in manifest["hosts"].items() if row["state"] != "collected"
    }
    module.exit_json(changed=True, bytes=dest.stat().st_size, missing=missing)


if __name__ == "__main__":
    main()
