"""``python -m tests.support.mypyc_module SOURCE OUT [STEP]``: one module compiled by mypyc, into OUT.

STEP, ``module:function``, is one of the steps of ``tools.compiled`` that change the C code; without it the C code
stays as mypyc wrote it.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Final

_OPTIMISATION: Final = "1"


def compiled(directory: Path, name: str, text: str, step: str = "") -> Path:
    """Compiles ``text`` as the module ``name``; returns the directory to import it from."""
    source, out = directory / f"{name}.py", directory / "lib"
    source.write_text(text)
    command = [
        sys.executable,
        "-m",
        "tests.support.mypyc_module",
        str(source),
        str(out),
        *filter(None, [step]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def _main(source: Path, out: Path, step: str) -> None:
    # Here, so that only the process that compiles imports them.
    from mypyc.build import mypycify
    from setuptools import Distribution

    code = out.with_name(f"{source.stem}-c")
    extensions = mypycify([str(source)], opt_level=_OPTIMISATION, target_dir=str(code))
    if step:
        module, _, function = step.partition(":")
        change = getattr(importlib.import_module(module), function)
        for path in code.rglob("*.c"):
            path.write_text(change(path.read_text())[0])
    settings = {"name": source.stem, "ext_modules": extensions, "packages": []}
    command = Distribution(settings).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(out), str(out.with_name(f"{source.stem}-o"))
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
