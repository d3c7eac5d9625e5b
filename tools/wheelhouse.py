"""Builds what a broker's host is installed from: the wheel, the wheels it needs, and one archive of both.

    python tools/wheelhouse.py     writes build/dist/ and build/wheelhouse-shipper/

build/dist has release.json and the archive that it names. build/wheelhouse-shipper has the client for the
journal shipper of each host. The closure of the broker's dependencies comes from the environment that `make
setup` made. Versions and hashes come from requirements.lock, and pip checks them. Nothing is built or fetched
again if its inputs did not change. The release's name contains a hash of its content, so other code goes to
another directory on the hosts. Builds run one at a time. A file that a deployment may be reading is replaced
whole, by a rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
WHEELHOUSE = ROOT / "build" / "wheelhouse"
SHIPPER_WHEELHOUSE = ROOT / "build" / "wheelhouse-shipper"
SHIPPER_CLIENT = "kafka-python"
DIST = ROOT / "build" / "dist"
KEPT_ARCHIVES = 3


def closure(names: Iterable[str]) -> set[str]:
    """Returns the canonical names of these distributions and of all their dependencies in
    this environment.
    """
    seen: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        needs = map(Requirement, distribution(name).requires or [])
        waiting += [
            canonicalize_name(need.name)
            for need in needs
            if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
    return seen


def locked_blocks(lock: str) -> Iterator[tuple[str, str]]:
    """Yields the name and text (pin and hashes) of every entry of a hashed requirements file."""
    for block in re.split(r"\n(?=\S)", lock):
        match = re.match(r"([A-Za-z0-9._-]+)==", block)
        if match:
            lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
            yield canonicalize_name(match[1]), "\n".join(lines).rstrip(" \\")


def requirements_of(names: Iterable[str], lock: str) -> str:
    """Returns the lock entries that these need at run time; `SystemExit` when one is missing."""
    wanted = closure(names)
    blocks = {name: block for name, block in locked_blocks(lock) if name in wanted}
    missing = sorted(wanted - blocks.keys())
    if missing:
        raise SystemExit(f"wheelhouse: requirements.lock has no {', '.join(missing)}: lock again")
    return "\n".join(blocks[name] for name in sorted(blocks)) + "\n"


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """Returns a hash of named contents."""
    whole = hashlib.sha256()
    for name, content in sorted(parts):
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def is_fresh(stamp: Path, key: str) -> bool:
    """Whether a result's stamp file says that it was built from these inputs."""
    return stamp.is_file() and stamp.read_text() == key


def fetch(directory: Path, requirements: str) -> None:
    """Fills a directory with the wheels of these requirements, hash-checked by pip."""
    stamp, key = directory / ".key", digest([("requirements", requirements.encode())])
    if is_fresh(stamp, key):
        return
    click.secho(f"wheelhouse: fetching {directory.relative_to(ROOT)}", fg="cyan", err=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as made:
        fresh = Path(made) / "wheels"
        fresh.mkdir()
        listed = fresh / "requirements.txt"
        listed.write_text(requirements)
        run("pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
            "--only-binary=:all:", f"--dest={fresh}", f"--requirement={listed}")  # fmt: skip
        (fresh / ".key").write_text(key)
        if directory.exists():
            directory.rename(Path(made) / "old")
        fresh.rename(directory)


def source_files() -> list[Path]:
    """Returns the files that go into the broker's wheel."""
    code = [path for path in (ROOT / "broker").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [*code, *(ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE"))]


def packed(version: str, wheel: Path, wheels: Iterable[Path], requirements: str) -> bytes:
    """The archive that a host installs: all wheels, of which ``wheel`` is the broker's, and their pins and hashes."""
    pin = f"landline=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    contents = {path.name: path.read_bytes() for path in wheels}
    contents["requirements.txt"] = (requirements + pin).encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def pack(version: str, wheel: Path, requirements: str) -> dict[str, str]:
    """Writes the archive of the working tree and returns the content of release.json."""
    content = packed(version, wheel, [*WHEELHOUSE.glob("*.whl"), wheel], requirements)
    release = f"{version}-{hashlib.sha256(content).hexdigest()[:10]}"
    archive = DIST / f"landline-{release}.tar"
    replace(archive, content)
    return {"release": release, "version": version, "archive": archive.name}


def build_wheel(directory: Path) -> Path:
    """Builds the broker's wheel there."""
    run("hatchling", "build", "-t", "wheel", "-d", str(directory))
    (wheel,) = directory.glob("*.whl")
    return wheel


def build(project: dict[str, Any], requirements: str) -> None:
    """Builds the wheel and the archive when the code or the dependencies changed."""
    inputs = [(str(path.relative_to(ROOT)), path.read_bytes()) for path in source_files()]
    stamp, key = DIST / ".key", digest([*inputs, ("requirements", requirements.encode())])
    if is_fresh(stamp, key):
        click.echo(
            f"wheelhouse: {json.loads((DIST / 'release.json').read_text())['release']} is up to date",
            err=True,
        )
        return
    DIST.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        described = pack(str(project["version"]), build_wheel(Path(made)), requirements)
    replace(DIST / "release.json", (json.dumps(described, indent=2) + "\n").encode())
    stamp.write_text(key)
    for old in sorted(DIST.glob("landline-*.tar"), key=lambda path: path.stat().st_mtime)[:-KEPT_ARCHIVES]:
        old.unlink()
    click.secho(f"wheelhouse: built {described['release']}", fg="green", err=True)


def replace(path: Path, content: bytes) -> None:
    """Replaces a file atomically: a reader gets the old or the new content, whole."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Holds a lock, so that no other build of this checkout runs meanwhile."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def run(module: str, *arguments: str) -> None:
    """Runs a module of this environment; `SystemExit` with its output when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"wheelhouse: {module} failed with {done.returncode}\n{done.stdout}{done.stderr}")


def main() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    requirements = requirements_of((Requirement(line).name for line in project["dependencies"]), lock)
    with alone(ROOT / "build" / ".wheelhouse.lock"):
        fetch(WHEELHOUSE, requirements)
        fetch(SHIPPER_WHEELHOUSE, requirements_of([SHIPPER_CLIENT], lock))
        build(project, requirements)


if __name__ == "__main__":
    main()
