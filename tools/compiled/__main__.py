"""``python -m tools.compiled``: compiles the request path beside a copy of the broker's sources. ADR 38."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import click

from tools.compiled.build import build

ROOT = Path(__file__).parents[2]


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "build" / "compiled", show_default=True
)
@click.option("--optimize", type=click.IntRange(0, 3), default=3, show_default=True, help="gcc's -O.")
@click.option(
    "--jobs", type=click.IntRange(1), default=os.cpu_count(), show_default=True, help="Compilers at once."
)
@click.option("--sanitize", is_flag=True, help="With gcc's sanitizers, for `make fuzz-sanitized`.")
def main(out: Path, optimize: int, jobs: int, sanitize: bool) -> None:
    """Copies the broker to OUT and compiles the modules of the request path there."""
    missing = [tool for tool in ("gcc",) if shutil.which(tool) is None]
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        missing.append("Python's headers (python3-dev)")
    if missing:
        raise click.ClickException(f"to compile, install {' and '.join(missing)}")
    count = build(ROOT, out, optimize, jobs, sanitize=sanitize)
    click.secho(f"{count} modules are compiled in {out}; with its sources", fg="green")


if __name__ == "__main__":
    main()
