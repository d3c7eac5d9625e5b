"""``python -m tools.compiled.checkout DIR``: a copy of this checkout whose broker runs compiled, for its tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import click

from broker.utils.compiled import MANIFEST
from tools.build_lock import alone
from tools.wheels import COMPILED, ROOT, compiled_modules, require_compiler

MARK: Final = ".compiled-checkout"
_FEWEST_MODULES: Final = 3  # the group's, one of the broker's, and what they were compiled from


def copy_with(compiled: Path, out: Path, root: Path = ROOT) -> None:
    """Copies all files of the checkout ``root`` that Git does not ignore to ``out``, and what ``compiled`` has of
    the broker's modules beside them. The environment is the checkout's own.
    """
    if out.exists() and not (out / MARK).is_file():
        raise SystemExit(f"compiled: {out} is there and is no copy of an earlier run")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    paths = [root / name for name in listed.split("\0") if name]
    # A file that was deleted is still listed. Of another repository within this one, only the directory is.
    paths = [path for path in paths if path.is_symlink() or path.is_file()]
    modules = [*compiled.glob("*.so"), *(compiled / "broker").rglob("*.so"), compiled / "broker" / MANIFEST]
    if not paths or len(modules) < _FEWEST_MODULES:
        raise SystemExit(f"compiled: {root} is no checkout, or {compiled} has no compiled modules")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()
    for base, files in ((root, paths), (compiled, modules)):
        for path in files:
            target = out / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
    (out / ".venv").symlink_to(root / ".venv")


@click.command()
@click.argument(
    "out", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "build" / "compiled-checkout"
)
@click.option(
    "--of", "compiled", type=click.Path(path_type=Path, exists=True), help="What is compiled already."
)
def main(out: Path, compiled: Path | None) -> None:
    """Copies the checkout to OUT (build/compiled-checkout), with the request path compiled there."""
    require_compiler()
    made = compiled or compiled_modules()
    with alone(COMPILED.with_name(".compiled.lock")):
        copy_with(made, out)
    click.secho(f"compiled: {out}; try: cd {out} && .venv/bin/pytest tests/unit/log", fg="green", err=True)


if __name__ == "__main__":
    main()
