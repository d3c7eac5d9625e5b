"""Builds the archive of the collection landline.cluster, from the tracked files of a checkout.

    python -m tools.collection DIRECTORY     writes DIRECTORY/landline-cluster-VERSION.tar.gz

`make release` does it too. ansible-galaxy decides by galaxy.yml what is in the archive. Two of its files are made here:
README.md is docs/collection.md, and changelogs/changelog.yaml, the form that Ansible's tools read, is made from
CHANGELOG.md. The same files give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml  # type: ignore[import-untyped]

# What a kind of change is called in a collection's changelog.
KINDS: Final = {
    "Added": "minor_changes",
    "Changed": "minor_changes",
    "Deprecated": "deprecated_features",
    "Removed": "removed_features",
    "Fixed": "bugfixes",
    "Security": "security_fixes",
}
_VERSION: Final = re.compile(rb"^version: .*$", re.MULTILINE)


def changelog(text: str) -> dict[str, Any]:
    """The releases of CHANGELOG.md as antsibull-changelog has them."""
    releases: dict[str, Any] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        version, dash, day = heading.partition(" - ")
        if not dash:  # Unreleased
            continue
        changes: dict[str, list[str]] = {}
        for part in re.split(r"^### ", body, flags=re.MULTILINE)[1:]:
            kind, _, items = part.partition("\n")
            entries = re.split(r"^- ", items, flags=re.MULTILINE)[1:]
            changes.setdefault(KINDS[kind], []).extend(" ".join(entry.split()) for entry in entries)
        releases[version] = {"changes": changes, "release_date": day}
    return {"ancestor": None, "releases": releases}


def staged(files: Mapping[str, bytes], version: str) -> dict[str, bytes]:
    """What ansible-galaxy builds from."""
    kept = {name: content for name, content in files.items() if not name.startswith(".")}
    kept["galaxy.yml"] = _VERSION.sub(f"version: {version}".encode(), files["galaxy.yml"])
    kept["README.md"] = files["docs/collection.md"]
    made = yaml.safe_dump(changelog(files["CHANGELOG.md"].decode()), allow_unicode=True, width=110)
    kept["changelogs/changelog.yaml"] = f"---\n{made}".encode()
    return kept


def build(files: Mapping[str, bytes], version: str) -> tuple[str, bytes]:
    """The archive's name and content, from the checkout's files by their names."""
    with tempfile.TemporaryDirectory() as directory:
        root, out = Path(directory) / "tree", Path(directory) / "out"
        for name, content in staged(files, version).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        galaxy(Path(directory), "build", f"--output-path={out}", str(root))
        (archive,) = out.glob("*.tar.gz")
        return archive.name, normalised(archive.read_bytes())


def galaxy(home: Path, *arguments: str) -> None:
    """Runs `ansible-galaxy collection`; `SystemExit` with its output when it fails."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-galaxy")), "collection", *arguments],
        cwd=home,
        env=os.environ | {"ANSIBLE_HOME": f"{home}/ansible"},
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"collection: ansible-galaxy collection {arguments[0]} failed: {done.stdout}{done.stderr}"
        )


def normalised(archive: bytes) -> bytes:
    """The same archive without times and users, and in the order of the names. Its list of files is in the order in
    which they were found on the disk, and the manifest has the hash of that list.
    """
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old:
        entries = {entry.name: _content(old, entry) for entry in old}
    listed = json.loads(entries["FILES.json"] or "")
    listed["files"].sort(key=lambda each: each["name"])
    files = json.dumps(listed, indent=1, sort_keys=True).encode()
    manifest = json.loads(entries["MANIFEST.json"] or "")
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(files).hexdigest()
    # Readers look for these first.
    first = {"MANIFEST.json": json.dumps(manifest, indent=1, sort_keys=True).encode(), "FILES.json": files}
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as new,
    ):
        for name, content in {**first, **dict(sorted(entries.items())), **first}.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = (tarfile.DIRTYPE, 0o755) if content is None else (tarfile.REGTYPE, 0o644)
            entry.size = len(content or b"")
            new.addfile(entry, io.BytesIO(content or b""))
    return out.getvalue()


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes | None:
    """The content of a file; None of a directory."""
    file = archive.extractfile(entry)
    return None if file is None else file.read()


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
def main(directory: Path) -> None:
    """Build the collection's archive of the working tree."""
    from tools.release import project_version, sources
    from tools.wheelhouse import ROOT

    name, content = build(sources(ROOT, allow_dirty=True).files, project_version(ROOT))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)
    click.echo(directory / name)


if __name__ == "__main__":
    main()
