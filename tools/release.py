"""Builds what hosts are installed from, for one version: ``make release``.

    python -m tools.release [--platform cp311-x86_64] [--out build/release]

Writes to build/release:

- ``landline-VERSION-PLATFORM.tar`` for each platform: the broker's wheel, the wheels that it needs, and their hashes;
  and the journal shipper's wheel
- ``landline-cluster-VERSION.tar.gz``: the collection landline.cluster that deploys it, for ansible-galaxy
- ``landline-VERSION-source.tar.gz``: the checkout
- ``landline-VERSION.cdx.json``: what is in it, as CycloneDX 1.6
- ``landline-VERSION.json``: the commit, each platform's archive, the collection's, and the hashes of Spark's jars
- ``landline-VERSION.sha256``: for ``sha256sum --check``

A version has one content. If its files were made from other sources, they are not written over.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from pipeline import jars
from tools import collection
from tools.build_lock import alone
from tools.wheelhouse import (
    ROOT,
    SHIPPER_CLIENT,
    SHIPPER_KEY,
    download,
    packed,
    platforms,
    replace,
    requirements_of,
)
from tools.wheels import build_wheels, compiles, fitting

OUT: Final = ROOT / "build" / "release"
# The Python and the machine of the hosts, as a wheel's name has them.
PLATFORMS: Final = (*platforms("x86_64"), *platforms("aarch64"))
# What git says of inventories that are not committed: they are the operator's, and in no archive.
OWN: Final = "?? inventory/"


@dataclass(frozen=True, slots=True)
class Sources:
    """The checkout: its commit, its tracked files by their names in it, and its links to directories."""

    commit: str
    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        whole = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
        whole.update("".join(f"{name}\0{target}\0" for name, target in sorted(self.links.items())).encode())
        return whole.hexdigest()


def sources(root: Path, *, allow_dirty: bool) -> Sources:
    """What is committed; `SystemExit` if the tree has other content. Inventories may lie beside the sample."""
    status = _git(root, "status", "--porcelain").splitlines()
    changes = "\n".join(line for line in status if not line.startswith(OWN))
    if changes and not allow_dirty:
        raise SystemExit(
            "release: a release is made from what is committed, and these files are not:\n"
            f"{changes}\nCommit them, or deploy the working tree by landline_version: dev"
        )
    commit = _git(root, "rev-parse", "HEAD") + ("-dirty" if changes else "")
    paths = {name: root / name for name in _git(root, "ls-files").splitlines()}
    return Sources(
        commit,
        {name: path.read_bytes() for name, path in paths.items() if path.is_file()},
        {name: str(path.readlink()) for name, path in paths.items() if path.is_symlink() and path.is_dir()},
    )


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"release: git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Archive:
    """A file of a release: its name, and its SHA-256 in hex."""

    file: str
    sha256: str


def bill_of_materials(
    version: str, wheels: Iterable[tuple[str, str]], deploying: Archive, spark: Iterable[jars.Jar]
) -> str:
    """The components of a release: what its wheels are by their names and the SHA-256 of each, the collection that
    deploys it, and the jars that Spark's hosts get.
    """
    release = Component(name="landline", version=version, type=ComponentType.APPLICATION, bom_ref="landline")
    bom = Bom()
    components: dict[str, Component] = {}
    bom.metadata.component = release
    for file, sha256 in sorted(wheels):
        name, at, _, _ = parse_wheel_filename(file)
        if name == "landline":
            continue
        # A wheel for each platform is one component.
        purl = PackageURL("pypi", None, name, str(at))
        components.setdefault(str(purl), _component(purl)).hashes.add(_sha256(sha256))
    others = {
        PackageURL(
            "generic", None, "landline-cluster", version, {"file_name": deploying.file}
        ): deploying.sha256,
        **{PackageURL("maven", jar.group, jar.name, jar.version): jar.sha256 for jar in spark},
    }
    for purl, sha256 in others.items():
        components[str(purl)] = _component(purl)
        components[str(purl)].hashes.add(_sha256(sha256))
    for component in components.values():
        bom.components.add(component)
    bom.register_dependency(release, components.values())
    text = json.loads(JsonV1Dot6(bom).output_as_string())
    # The same release has the same bytes.
    del text["serialNumber"], text["metadata"]["timestamp"]
    return json.dumps(text, indent=2, sort_keys=True) + "\n"


def _component(purl: PackageURL) -> Component:
    return Component(name=purl.name, group=purl.namespace, version=purl.version, purl=purl, bom_ref=str(purl))


def _sha256(content: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=content)


class Release:
    """The files of one version in a directory."""

    def __init__(self, version: str, out: Path, *, compiled: bool = False) -> None:
        self.version = version
        self._out = out
        self._compiled = compiled
        self._manifest = out / f"landline-{version}.json"

    def made(self) -> dict[str, Any] | None:
        """What an earlier run has made of this version; None: nothing."""
        return json.loads(self._manifest.read_text()) if self._manifest.is_file() else None

    def make(self, source: Sources, requirements: str, shipper: str, hosts: Iterable[str]) -> None:
        """Adds the platforms that are not there yet. ``shipper`` is what the journal shipper needs. `SystemExit` if the
        version was made of other sources.
        """
        made = self.made()
        if made is not None and made["sources"] != source.digest:
            raise SystemExit(
                f"release: {self.version} was made from {made['commit']}, which has other files. A version has one "
                "content: raise the version in pyproject.toml and broker/__init__.py, or delete "
                f"{self._out}/landline-{self.version}*"
            )
        archives = dict(made["archives"]) if made else {}
        missing = [platform for platform in hosts if platform not in archives]
        if not missing:
            click.echo(f"release: {self.version} is up to date", err=True)
            return
        self._out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            own = build_wheels(Path(directory), compiled=self._compiled)
            for platform in missing:
                click.secho(f"release: {self.version} for {platform}", fg="cyan", err=True)
                archives[platform] = self._archive(platform, fitting(own, platform), requirements, shipper)
        self._describe(source, archives)

    def _archive(self, platform: str, own: list[Path], requirements: str, shipper: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as broker, tempfile.TemporaryDirectory() as beside:
            download(Path(broker), requirements, platform)
            download(Path(beside), shipper, platform)
            others, shippers = list(Path(broker).glob("*.whl")), list(Path(beside).glob("*.whl"))
            content = packed(self.version, own, others, requirements, shippers)
            wheels = (*own, *others, *shippers)
            hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
            shipped = sorted(path.name for path in shippers)
        name = f"landline-{self.version}-{platform}.tar"
        replace(self._out / name, content)
        sha256 = hashlib.sha256(content).hexdigest()
        return {"file": name, "sha256": sha256, "wheels": hashes, SHIPPER_KEY: shipped}

    def _describe(self, source: Sources, archives: Mapping[str, Any]) -> None:
        """Writes the other files, the manifest last: a version without one is not complete."""
        name, content = collection.build(source.files, self.version)
        deploying, built = self._out / name, Archive(name, hashlib.sha256(content).hexdigest())
        replace(deploying, content)
        tree = self._out / f"landline-{self.version}-source.tar.gz"
        replace(tree, _tar_gz(f"landline-{self.version}", source))
        wheels = {item for archive in archives.values() for item in archive["wheels"].items()}
        materials = self._out / f"landline-{self.version}.cdx.json"
        replace(materials, bill_of_materials(self.version, wheels, built, jars.CONNECTOR).encode())
        manifest = {
            "version": self.version,
            "commit": source.commit,
            "sources": source.digest,
            "archives": dict(sorted(archives.items())),
            SHIPPER_KEY: sorted({name for each in archives.values() for name in each.get(SHIPPER_KEY, ())}),
            "collection": {"file": built.file, "sha256": built.sha256},
            "jars": {jar.file_name: jar.sha256 for jar in jars.CONNECTOR},
        }
        text = (json.dumps(manifest, indent=2) + "\n").encode()
        files = [self._out / archive["file"] for archive in archives.values()] + [deploying, tree, materials]
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(files)]
        sums.append(f"{hashlib.sha256(text).hexdigest()}  {self._manifest.name}")
        replace(self._out / f"landline-{self.version}.sha256", ("\n".join(sums) + "\n").encode())
        replace(self._manifest, text)


def _tar_gz(prefix: str, source: Sources) -> bytes:
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, target in sorted(source.links.items()):
            entry = tarfile.TarInfo(f"{prefix}/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        for name, content in sorted(source.files.items()):
            entry = tarfile.TarInfo(f"{prefix}/{name}")
            entry.size, entry.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def project_version(root: Path) -> str:
    """The version of pyproject.toml; `SystemExit` if the broker reports another one."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    reported = re.search(r'^__version__ = "(.*)"$', (root / "broker/__init__.py").read_text(), re.MULTILINE)
    if reported is None or reported[1] != version:
        raise SystemExit(
            f"release: pyproject.toml has version {version}, broker/__init__.py {reported and reported[1]}"
        )
    return version


@click.command()
@click.option(
    "--platform", "hosts", type=click.Choice(PLATFORMS), multiple=True, help="Only for these hosts."
)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Directory of the archives.")
@click.option(
    "--compiled/--pure",
    default=None,
    help="With compiled code for hosts like this one, or without: with it where there is a C compiler.",
)
@click.option("--allow-dirty", is_flag=True, help="Also of what is not committed: for tests.")
def main(hosts: tuple[str, ...], out: Path, compiled: bool | None, allow_dirty: bool) -> None:
    """Build the archives of this version for hosts."""
    is_compiled = compiles(compiled)
    version, source = project_version(ROOT), sources(ROOT, allow_dirty=allow_dirty)
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    requirements = requirements_of((Requirement(line).name for line in project["dependencies"]), lock)
    with alone(ROOT / "build" / ".wheelhouse.lock"):
        shipper = requirements_of([SHIPPER_CLIENT], lock)
        Release(version, out, compiled=is_compiled).make(source, requirements, shipper, hosts or PLATFORMS)
    click.secho(
        f"release: {out} has landline {version}. Deploy it by landline_version: {version} in the inventory",
        fg="green",
        err=True,
    )


if __name__ == "__main__":
    main()
