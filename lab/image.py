"""The base image that all hosts share: a minimal Debian tree, built once and cached by the hash of
its inputs.

A build goes to a temporary directory, which is renamed when complete. A lock makes two simultaneous users
build only once. The image is never written to afterwards: hosts are overlays on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

from lab.errors import CommandFailedError, LabError, UsageError
from lab.preflight import SEARCH_PATH
from lab.shell import run
from lab.state import cache_root, locked

Report = Callable[[str], None]

SUITES = ("bookworm", "trixie")
"""The releases of Debian that hosts can be, Debian 12 and Debian 13; the first is the default."""
SUITE_ENV = "LANDLINE_LAB_SUITE"
"""The suite of new labs, where none is given."""
MIRROR_ENV = "LANDLINE_LAB_MIRROR"
"""The Debian mirror to build from; mmdebstrap's default if not set."""

PACKAGES = (
    "acl",
    "ca-certificates",
    "curl",
    "dbus",
    "default-jre-headless",
    "iproute2",
    "iputils-ping",
    "netcat-openbsd",
    "nftables",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "python3-packaging",
    "python3-venv",
    "rsync",
    "sudo",
    "systemd",
    "systemd-sysv",
    "zookeeper",
)

_OPTIONS = (
    "--variant=minbase",
    "--format=directory",
    '--aptopt=Apt::Install-Recommends "false"',
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)
_CUSTOMIZE = Path(__file__).with_name("customize.sh")
_PREFIX = "image-"
_BUILDING = "building-"


def suite_of(name: str | None) -> str:
    """That suite, else the environment's, else the default; `UsageError` if the lab has no such images."""
    suite = name or os.environ.get(SUITE_ENV) or SUITES[0]
    if suite not in SUITES:
        raise UsageError(f"there is no image {suite!r}: the lab has {', '.join(SUITES)}")
    return suite


def key(suite: str) -> str:
    """Sixteen hex digits that change with anything that goes into the image."""
    inputs = "\n".join((suite, *PACKAGES, *_OPTIONS, _CUSTOMIZE.read_text()))
    return hashlib.sha256(inputs.encode()).hexdigest()[:16]


def path(suite: str = SUITES[0]) -> Path:
    """The path of the image of a suite for the current inputs, whether or not it exists."""
    return cache_root() / f"{_PREFIX}{key(suite)}"


def ensure(report: Report, suite: str = SUITES[0]) -> Path:
    """Return the image's directory; builds it first (about a minute) if it is missing."""
    image = path(suite)
    if image.is_dir():
        return image
    if ":" in str(image) or "," in str(image):
        raise LabError(f"{image}: an overlay's lower directory cannot have ':' or ',' in its path")
    with locked(cache_root() / ".build.lock"):
        if not image.is_dir():
            _remove_leftovers(cache_root())
            _build(image, suite, report)
    return image


def remove_unused(used: set[str]) -> list[Path]:
    """Remove images of former inputs that no lab uses (`used` holds image paths); return them."""
    removed = []
    current = [path(suite) for suite in SUITES]
    with locked(cache_root() / ".build.lock"):
        for image in sorted(cache_root().glob(f"{_PREFIX}*")):
            if image not in current and str(image) not in used:
                _remove_tree(image)
                removed.append(image)
    return removed


def _build(image: Path, suite: str, report: Report) -> None:
    begin = time.monotonic()
    building = image.with_name(f"{_BUILDING}{os.getpid()}")
    report(f"building the base image {image} of {suite} ({len(PACKAGES)} packages and what they need)")
    try:
        with contextlib.closing(_mmdebstrap(building, suite)) as lines:
            for line in lines:
                report(f"{time.monotonic() - begin:5.0f} s  {line}")
        building.chmod(0o755)
        building.rename(image)
    except BaseException:
        _remove_tree(building)
        raise
    report(f"{time.monotonic() - begin:5.0f} s  base image ready")


def _mmdebstrap(target: Path, suite: str) -> Generator[str, None, None]:
    """Run mmdebstrap and yield its progress. All output is in build.log. Raises `CommandFailedError`
    on failure.
    """
    argv = ["mmdebstrap", *_OPTIONS, f"--include={','.join(PACKAGES)}"]
    argv += [f'--customize-hook=sh {_CUSTOMIZE} "$1"', suite, str(target)]
    if os.environ.get(MIRROR_ENV):
        argv.append(os.environ[MIRROR_ENV])
    log = cache_root() / "build.log"
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PATH": f"{SEARCH_PATH}:{os.environ.get('PATH', '')}", "LC_ALL": "C.UTF-8"},
    )
    assert process.stdout is not None
    try:
        with log.open("w") as kept:
            for line in process.stdout:
                kept.write(line)
                if line.startswith("I: "):
                    yield line[3:].rstrip()
        if process.wait() != 0:
            raise CommandFailedError(argv[:1], process.returncode, f"everything it said is in {log}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
        process.stdout.close()


def _remove_leftovers(cache: Path) -> None:
    """Remove the leftovers of killed builds. The caller's lock ensures that no build is running."""
    for leftover in cache.glob(f"{_BUILDING}*"):
        _remove_tree(leftover)


def _remove_tree(tree: Path) -> None:
    """Remove a tree without crossing into a file system that is still mounted below it."""
    if tree.exists():
        run(["rm", "-rf", "--one-file-system", "--", str(tree)], timeout_s=300)
    if tree.exists():
        shutil.rmtree(tree, ignore_errors=True)
