#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Installs an unpacked release into a virtual environment, one run at a time.

The lock is the process's own: a run that dies leaves none behind, and the next one begins anew.
"""

from __future__ import annotations

DOCUMENTATION = """
module: release_install
short_description: Install a release from its wheelhouse
description:
  - Makes a release's virtual environment from its wheelhouse, compiles it and marks it as complete.
  - 'Of runs at the same time one installs, and the others wait for it: none takes away what another has made.'
  - Nothing is downloaded. Every file is in the wheelhouse and has the hash that the build recorded.
author: The Landline authors (!UNKNOWN)
options:
  directory:
    description: The release's directory, with the wheelhouse in it.
    type: path
    required: true
  python:
    description: The Python that the environment is made with.
    type: path
    required: true
  done:
    description: File that is there when the release is complete.
    type: path
    required: true
  note:
    description: What that file says.
    type: str
    required: true
"""
EXAMPLES = """
- name: Install the release
  landline.cluster.release_install:
    directory: /opt/landline/releases/0.4.0
    python: /usr/bin/python3.11
    done: /opt/landline/releases/0.4.0/.installed
    note: "0.4.0"
"""
RETURN = """
step:
  description: The step that failed.
  type: str
  returned: failure
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

LOCK = ".install.lock"
MODE = 0o644
# Less than a release takes.
LITTLE_MB = 150
# Hardened hosts set root's to 027 or 077: the brokers' user could not start a command of its release.
UMASK = 0o022


def steps(directory: Path, python: str) -> Iterator[tuple[str, list[str]]]:
    """Yields what is done, in words and as a command."""
    venv, wheelhouse = directory / "venv", directory / "wheelhouse"
    own = str(venv / "bin/python")
    yield "make the virtual environment", [python, "-m", "venv", "--clear", str(venv)]
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    where = ["--find-links", str(wheelhouse), "--requirement", str(wheelhouse / "requirements.txt")]
    yield "install the wheels", [*pip, "--require-hashes", "--no-compile", *where]
    # The service's file system is read-only: files not compiled now would be compiled at every start.
    compiled = [own, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    yield "compile to bytecode", [*compiled, "-x", "/pip/|/setuptools/", str(venv / "lib")]
    yield "start the command", [str(venv / "bin/landline"), "--help"]


def install(module: AnsibleModule, directory: Path, done: Path) -> bool:
    """Installs the release unless it is complete; returns whether it did."""
    with (directory / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return False
        for step, argv in steps(directory, module.params["python"]):
            code, out, error = module.run_command(argv)
            if code != 0:
                said = (error or out).strip() or f"{argv[0]} ended with {code}"
                # Python's venv does not tell why its pip could not be installed.
                left_mb = shutil.disk_usage(directory).free >> 20
                if left_mb < LITTLE_MB:
                    said = f"{said} There are {left_mb} MB left on its disk"
                module.fail_json(msg=f"{directory}: could not {step}: {said}", step=step)
        # In one step, so that it is never there without its words.
        made = done.with_name(f"{done.name}.made")
        made.write_text(module.params["note"])
        made.chmod(MODE)
        made.replace(done)
        return True


def main() -> None:
    module = AnsibleModule(
        {
            "directory": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "done": {"type": "path", "required": True},
            "note": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    directory, done = Path(module.params["directory"]), Path(module.params["done"])
    os.umask(UMASK)
    if module.check_mode:
        module.exit_json(changed=not done.exists())
    try:
        module.exit_json(changed=install(module, directory, done))
    except OSError as error:
        module.fail_json(msg=f"{directory}: {error.strerror}", step="begin")


if __name__ == "__main__":
    main()
