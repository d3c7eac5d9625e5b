"""Builds the compiled modules: mypyc writes C, ``store_first`` and others mend it, gcc compiles it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.utils.compiled import MANIFEST, manifest_of
from tools.compiled.clear_first import cleared_first
from tools.compiled.give_way import giving_way
from tools.compiled.rules import modules
from tools.compiled.store_first import stored_first

# One extension module with all the code; beside each source there is a small one that refers to it.
GROUP = "landline"
# What mypy reads.
NEEDED = ("broker", "tools/typings")


SANITIZERS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g1")


def build(root: Path, out: Path, optimize: int, jobs: int, *, sanitize: bool = False) -> int:
    """Copies the broker to ``out`` and compiles the listed modules there. Returns how many there are.
    ``sanitize``: with gcc's checks of addresses and undefined behaviour, for processes that load its libasan first.

    Raises SystemExit (mypyc's, after it has told what is wrong with a source), UnknownCodeError, and the errors of
    setuptools if gcc fails.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in NEEDED:
        shutil.copytree(root / name, out / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy2(root / "pyproject.toml", out)
    before = Path.cwd()
    os.chdir(out)
    try:
        _compile(modules(), optimize, jobs, SANITIZERS if sanitize else ())
    finally:
        os.chdir(before)
    return len(modules())


def _compile(paths: list[str], optimize: int, jobs: int, checks: Sequence[str]) -> None:
    from mypy.version import __version__ as mypy  # late: it is large, and with it comes setuptools
    from mypyc.build import mypycify
    from setuptools import Distribution

    extensions = mypycify(
        paths,
        opt_level=str(optimize),
        debug_level="0",
        multi_file=True,
        group_name=GROUP,
        target_dir="compiled",
    )
    for extension in extensions:
        extension.extra_compile_args += checks
        extension.extra_link_args += checks
    for path in Path("compiled").rglob("*.c"):
        code, replaced = stored_first(path.read_text())
        code, cleared = cleared_first(code)
        code, looped = giving_way(code)
        if replaced or cleared or looped:
            path.write_text(code)
    command: Any = Distribution({"name": GROUP, "ext_modules": extensions, "packages": []}).get_command_obj(
        "build_ext"
    )
    command.build_lib, command.build_temp, command.parallel = ".", "compiled/objects", jobs
    command.ensure_finalized()
    command.run()
    shutil.rmtree("compiled")
    package = Path("broker")
    inside = [path.removeprefix("broker/") for path in paths]
    (package / MANIFEST).write_text(manifest_of(package, inside, f"mypyc {mypy}"))
