"""A repository of Debian packages as plain files, for hosts that reach no mirror."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

SOURCE = "deb [trusted=yes] file:{path} ./\n"


def download(packages: list[str], image: Path, directory: Path) -> None:
    """Downloads the packages and what they need beyond a lab's image into the directory, with apt's index of them.

    Raises AssertionError when this machine's apt cannot have them.
    """
    (directory / "partial").mkdir(parents=True)
    options = [f"Dir::State::status={image}/var/lib/dpkg/status", f"Dir::Cache::archives={directory}"]
    command = ["apt-get", "--download-only", "--no-install-recommends", "--yes", "--quiet=2"]
    command += [argument for option in options for argument in ("-o", option)]
    if not _done([*command, "install", *packages]):
        _done(["apt-get", "update", "--quiet=2"])  # the lists may be missing, or name versions of old
        assert _done([*command, "install", *packages]), f"apt cannot download {packages}"
    index = [_entry(file) for file in sorted(directory.glob("*.deb"))]
    assert index
    (directory / "Packages").write_text("\n".join(index))


def _done(command: list[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def _entry(file: Path) -> str:
    fields = subprocess.run(
        ["dpkg-deb", "--field", str(file)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return f"{fields}Filename: ./{file.name}\nSize: {len(content)}\nSHA256: {digest}\n"
