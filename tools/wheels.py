"""The broker's two wheels from one tree: pure Python, and with the request path compiled. ``make wheel``, ADR 39.

    python -m tools.wheels [--out build/wheels]

The compiled one is built where a C compiler and Python's headers are, for this Python and this machine. pip takes it
on hosts that it fits, and the pure one on all others.
"""

from __future__ import annotations

import hashlib
import os
import platform as machines
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final

import click
from packaging.utils import parse_wheel_filename

from tools.build_lock import alone

ROOT: Final = Path(__file__).resolve().parent.parent
COMPILED: Final = ROOT / "build" / "compiled"
_NOT_COMPILED: Final = "wheel: pure Python alone, for here is no {}"
# gcc's -O: 3 makes a program half as large again, which is not quicker.
_OPTIMIZE: Final = "2"


def missing_compiler() -> list[str]:
    """What this machine lacks for compiling, in the words of Debian's packages; empty: nothing."""
    missing = [] if shutil.which("gcc") else ["gcc"]
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append("python3-dev")
    try:
        installed("setuptools")
    except ModuleNotFoundError:
        missing.append("setuptools in this environment")
    return missing


def require_compiler() -> None:
    """`SystemExit` if nothing can be compiled here."""
    if missing := missing_compiler():
        raise SystemExit(f"wheel: to compile, install {' and '.join(missing)}")


def compiles(wish: bool | None) -> bool:
    """Whether compiled code is built: as wished, and without a wish where it can be, which is told where it cannot.

    `SystemExit` if it is wished and cannot be.
    """
    if wish:
        require_compiler()
    elif wish is None and (missing := missing_compiler()):
        click.secho(_NOT_COMPILED.format(" and no ".join(missing)), fg="yellow", err=True)
        return False
    return wish is not False


def build_wheels(directory: Path, *, compiled: bool) -> list[Path]:
    """Builds the pure wheel there and, if asked to, the compiled one. `SystemExit` says what failed."""
    made = [_built(directory / "pure", {})]
    if compiled:
        made.append(_built(directory / "compiled", {"LANDLINE_COMPILED": str(compiled_modules())}))
    return made


def fitting(wheels: Iterable[Path], platform: str) -> list[Path]:
    """Those of these wheels that hosts of a platform (``cp311-x86_64``) can install."""
    python, _, machine = platform.partition("-")

    def fits(wheel: Path) -> bool:
        _, _, _, tags = parse_wheel_filename(wheel.name)
        return any(
            tag.platform == "any" or (tag.interpreter == python and tag.platform.endswith(f"_{machine}"))
            for tag in tags
        )

    return [wheel for wheel in wheels if fits(wheel)]


def compiled_modules() -> Path:
    """The directory with the modules compiled from these sources; compiles them if it has others."""
    stamp, key = COMPILED / ".key", _key()
    with alone(COMPILED.with_name(".compiled.lock")):
        if not (stamp.is_file() and stamp.read_text() == key):
            click.secho("wheel: compiling the request path, which takes some minutes", fg="cyan", err=True)
            stamp.unlink(missing_ok=True)
            _run("tools.compiled", "--out", str(COMPILED), "--optimize", _OPTIMIZE)
            stamp.write_text(key)
    return COMPILED


def _key() -> str:
    """A hash of what the compiled code depends on: sources but the version's number, compilers, Python."""
    whole = hashlib.sha256(f"{sys.version} {machines.machine()} {installed('mypy')} {_OPTIMIZE}".encode())
    gcc = subprocess.run(["gcc", "--version"], capture_output=True, check=True).stdout
    whole.update(gcc + repr(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]).encode())
    files = [
        *(ROOT / "broker").rglob("*.py"),
        *(ROOT / "broker").rglob("*.pyi"),
        *(ROOT / "tools" / "typings").rglob("*.pyi"),
        *(ROOT / "tools" / "compiled").glob("*.*"),
    ]
    for path in sorted(files):
        if path != ROOT / "broker" / "__init__.py":
            whole.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return whole.hexdigest()


def _built(directory: Path, environment: dict[str, str]) -> Path:
    _run("hatchling", "build", "-t", "wheel", "-d", str(directory), **environment)
    (wheel,) = directory.glob("*.whl")
    return wheel


def _run(module: str, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "LANDLINE_COMPILED"} | environment,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"wheel: {module} failed with {done.returncode}\n{done.stdout}{done.stderr}")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "build" / "wheels", show_default=True)
@click.option(
    "--compiled/--pure", default=None, help="Both wheels, or this one alone; by default what can be built."
)
def main(out: Path, compiled: bool | None) -> None:
    """Build the broker's wheels into a directory, the compiled one where a compiler is."""
    with tempfile.TemporaryDirectory() as directory:
        made = build_wheels(Path(directory), compiled=compiles(compiled))
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        for wheel in made:
            shutil.copy2(wheel, out)
            click.secho(f"wheel: {out / wheel.name}", fg="green", err=True)


if __name__ == "__main__":
    main()
