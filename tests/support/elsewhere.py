"""A directory with nothing but the installed collection landline.cluster: how those use it who have no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLAYBOOK = """\
- name: Deploy the cluster
  ansible.builtin.import_playbook: landline.cluster.deploy
"""


class Elsewhere:
    """Runs Ansible's programs in `home`, an empty directory, with an archive's collection and a playbook site.yml."""

    def __init__(self, home: Path, archive: Path) -> None:
        self._home = home
        (home / "site.yml").write_text(PLAYBOOK)
        self.run(
            "ansible-galaxy", "collection", "install", f"--collections-path={home}/collections", str(archive)
        )

    def run(self, program: str, *arguments: str) -> str:
        """What the program says; it must succeed."""
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=self._home,
            env=os.environ
            | {
                "ANSIBLE_HOME": f"{self._home}/ansible",
                "ANSIBLE_COLLECTIONS_PATH": f"{self._home}/collections",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return done.stdout
