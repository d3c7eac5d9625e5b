"""Builds what a broker's host is installed from: the wheel, the wheels it needs, and one archive of both.

    python -m tools.wheelhouse     writes build/dist/ and build/wheelhouse-shipper/

build/dist has release.json and the archives that it names: one for each Python that a host may have, on machines
like this one. The client for the journal shipper of each host is in them too; it comes from build/wheelhouse-shipper.
The closure of the
broker's dependencies comes from the environment that `make setup` made. Versions and hashes come from
requirements.lock, and pip checks them. Nothing is built or fetched again if its inputs did not change. The
release's name contains a hash of its content, so other code goes to another directory on the hosts. Builds run
one at a time. A file that a deployment may be reading is replaced whole, by a rename.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform as machines
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.build_lock import alone
from tools.wheels import build_wheels, compiles, fitting

ROOT = Path(__file__).resolve().parent.parent
WHEELHOUSE = ROOT / "build" / "wheelhouse"
SHIPPER_WHEELHOUSE = ROOT / "build" / "wheelhouse-shipper"
SHIPPER_CLIENT = "kafka-python"
# Where archives have it: apart from what the broker is installed from. roles/broker/vars knows the same.
SHIPPER = "journal-shipper"
# By this release.json and a release's manifest tell that it is there.
SHIPPER_KEY = "journal_shipper"
DIST = ROOT / "build" / "dist"
# The Pythons that hosts may have, as a wheel's name has them; roles/common knows the same.
PYTHONS = ("cp311", "cp312", "cp313")
KEPT_RELEASES = 3
# Debian 12 has glibc 2.36 and Enterprise Linux 9 has 2.34; wheels that need an older one run there too.
_MANYLINUX = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 35)))


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


def platforms(machine: str) -> list[str]:
    """Returns the platforms of hosts with such a machine, as archives are named by them."""
    return [f"{python}-{machine}" for python in PYTHONS]


def download(directory: Path, requirements: str, platform: str) -> None:
    """Gets the wheels of these requirements for hosts of a platform; pip checks their hashes."""
    python, _, machine = platform.partition("-")
    listed = directory / "requirements.txt"
    listed.write_text(requirements)
    options = [f"--platform={tag}_{machine}" for tag in _MANYLINUX]
    options += [f"--abi={abi}" for abi in (python, "abi3", "none")]
    run("pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
        "--only-binary=:all:", "--implementation=cp", f"--python-version={python.removeprefix('cp')}", *options,
        f"--dest={directory}", f"--requirement={listed}")  # fmt: skip
    listed.unlink()


def fetch(directory: Path, requirements: str, platform: str) -> None:
    """Fills a directory with the wheels of these requirements for a platform, unless it has them."""
    stamp, key = directory / ".key", digest([("requirements", requirements.encode())])
    if is_fresh(stamp, key):
        return
    click.secho(f"wheelhouse: fetching {directory.relative_to(ROOT)}", fg="cyan", err=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as made:
        fresh = Path(made) / "wheels"
        fresh.mkdir()
        download(fresh, requirements, platform)
        (fresh / ".key").write_text(key)
        if directory.exists():
            directory.rename(Path(made) / "old")
        fresh.rename(directory)


def source_files() -> list[Path]:
    """Returns the files that go into the broker's wheels, or decide what does."""
    code = [path for path in (ROOT / "broker").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    compiling = (ROOT / "tools" / "compiled").glob("*.*")
    return [
        *code,
        *compiling,
        *(ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py")),
    ]


def packed(
    version: str, own: Iterable[Path], others: Iterable[Path], requirements: str, shipper: Iterable[Path]
) -> bytes:
    """The archive that a host installs: the broker's own wheels, of which pip takes the one that fits best, those that
    it needs, and the pins and hashes of all; and the journal shipper's.
    """
    own = sorted(own)
    hashes = (f" --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" for wheel in own)
    contents = {path.name: path.read_bytes() for path in (*own, *others)}
    contents |= {f"{SHIPPER}/{path.name}": path.read_bytes() for path in shipper}
    contents["requirements.txt"] = f"{requirements}landline=={version}{''.join(hashes)}\n".encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def pack(version: str, own: Iterable[Path], requirements: str, hosts: Iterable[str]) -> dict[str, Any]:
    """Writes the archives of the working tree for these platforms and returns the content of release.json."""
    shipper = shipper_wheels()
    contents = {
        platform: packed(
            version, fitting(own, platform), (WHEELHOUSE / platform).glob("*.whl"), requirements, shipper
        )
        for platform in hosts
    }
    release = f"{version}-{digest(contents.items())[:10]}"
    archives = {}
    for platform, content in contents.items():
        archive = DIST / f"landline-{release}-{platform}.tar"
        replace(archive, content)
        archives[platform] = {"file": archive.name, "sha256": hashlib.sha256(content).hexdigest()}
    names = {SHIPPER_KEY: [wheel.name for wheel in shipper]}
    return {"release": release, "version": version, "archives": archives, **names}


def shipper_wheels() -> list[Path]:
    """The journal shipper's wheels, which are the same for all platforms."""
    return sorted(SHIPPER_WHEELHOUSE.glob("*.whl"))


def build(project: dict[str, Any], requirements: str, hosts: list[str], *, compiled: bool) -> None:
    """Builds the wheels and the archives when the code or the dependencies changed."""
    inputs = [(str(path.relative_to(ROOT)), path.read_bytes()) for path in source_files()]
    inputs += [("requirements", requirements.encode()), ("platforms", " ".join(hosts).encode())]
    inputs += [("compiled", str(compiled).encode())]
    inputs += [(f"{SHIPPER}/{wheel.name}", wheel.read_bytes()) for wheel in shipper_wheels()]
    stamp, key = DIST / ".key", digest(inputs)
    if is_fresh(stamp, key):
        click.echo(
            f"wheelhouse: {json.loads((DIST / 'release.json').read_text())['release']} is up to date",
            err=True,
        )
        return
    DIST.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        own = build_wheels(Path(made), compiled=compiled)
        described = pack(str(project["version"]), own, requirements, hosts)
    replace(DIST / "release.json", (json.dumps(described, indent=2) + "\n").encode())
    stamp.write_text(key)
    kept = KEPT_RELEASES * len(hosts)
    for old in sorted(DIST.glob("landline-*.tar"), key=lambda path: path.stat().st_mtime)[:-kept]:
        old.unlink()
    kind = "with compiled code for hosts like this one" if compiled else "pure Python"
    click.secho(f"wheelhouse: built {described['release']}, {kind}", fg="green", err=True)


def replace(path: Path, content: bytes) -> None:
    """Replaces a file atomically: a reader gets the old or the new content, whole."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)


def run(module: str, *arguments: str) -> None:
    """Runs a module of this environment; `SystemExit` with its output when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"wheelhouse: {module} failed with {done.returncode}\n{done.stdout}{done.stderr}")


@click.command()
@click.option(
    "--compiled/--pure",
    default=None,
    help="With compiled code for hosts like this one, or without: with it where there is a C compiler.",
)
def main(compiled: bool | None) -> None:
    """Build what this checkout's hosts are installed from."""
    build_for_hosts(compiled)


def build_for_hosts(compiled: bool | None) -> None:
    """Builds the working tree, if it is not built as it is: with compiled code, without, or by what there is here."""
    is_compiled = compiles(compiled)
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    requirements = requirements_of((Requirement(line).name for line in project["dependencies"]), lock)
    hosts = platforms(machines.machine())
    with alone(ROOT / "build" / ".wheelhouse.lock"):
        for platform in hosts:
            fetch(WHEELHOUSE / platform, requirements, platform)
        fetch(SHIPPER_WHEELHOUSE, requirements_of([SHIPPER_CLIENT], lock), hosts[0])
        build(project, requirements, hosts, compiled=is_compiled)


if __name__ == "__main__":
    main()
