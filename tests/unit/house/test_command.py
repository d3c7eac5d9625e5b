"""The README's third command: the command that `make setup` installs for a user who only wants one broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LANDLINE = Path(sys.executable).parent / "landline"


def test_the_command_that_setup_makes_runs_from_any_directory(tmp_path: Path) -> None:
    argv = [LANDLINE, "standalone", "--help"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--port" in done.stdout
