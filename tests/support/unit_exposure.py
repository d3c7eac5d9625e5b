"""What systemd says of how much a service's unit leaves open."""

import shutil
import subprocess
from pathlib import Path

import pytest

asks_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")


def judged(unit: Path, most_tenths: int) -> subprocess.CompletedProcess[str]:
    """``systemd-analyze security`` of a file: its exit code is not 0 where more is exposed than these tenths of ten."""
    argv = ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={most_tenths}", unit]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
