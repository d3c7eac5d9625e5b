"""A play of a test, run as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rig.landline_broker import REPOSITORY


def played(
    home: Path, *arguments: str | Path, env: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Runs ``ansible-playbook`` from the checkout, with Ansible's own files in ``home``. What it said is printed.

    Those for modules too: they would be in the home of the user whom ``USER`` names, and beside the playbook for a
    user of a test's own, who has no home.
    """
    own = {"ANSIBLE_HOME": str(home / "ansible"), "ANSIBLE_REMOTE_TMP": str(home / "ansible/remote")}
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **own, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    return done
