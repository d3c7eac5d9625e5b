"""Spares a host's Python to compile the same source from zip archives again and again.

It is copied into the lab's image, and a file beside it, ``zip_bytecode.pth``, runs ``keep_in`` at each start
of Debian's Python (virtual environments see neither). Each task of Ansible sends a new archive with fifty
files, and Python keeps no bytecode of archives, so two fifths of a task's CPU time went into compiling them.
What runs is the same: bytecode is found by the hash of the source.
"""

from __future__ import annotations

import _imp
import marshal
import os
import zipimport
from types import CodeType


def keep_in(directory: str) -> None:
    """From now on bytecode of modules in archives is kept in the directory, as far as this user may write there."""
    compiled = zipimport._compile_source  # type: ignore[attr-defined] # noqa: SLF001 - no other place sees the source

    def found(path: str, source: bytes) -> CodeType:
        name = f"{directory}/{_imp.source_hash(0, source).hex()}-{os.path.basename(path)}"  # noqa: PTH119 - imports less
        try:
            with open(name, "rb") as kept:  # noqa: PTH123
                code: CodeType = marshal.loads(kept.read())  # noqa: S302 - written by the same user or by root
        except OSError:
            code = compiled(path, source)
            _keep(name, code)
        else:
            _imp._fix_co_filename(code, path)  # type: ignore[attr-defined] # noqa: SLF001 - as importlib does
        return code

    zipimport._compile_source = found  # type: ignore[attr-defined] # noqa: SLF001


def _keep(name: str, code: CodeType) -> None:
    """Under another name first: another process may read it at any moment."""
    part = f"{name}.{os.getpid()}"
    try:
        with open(part, "wb") as kept:  # noqa: PTH123
            kept.write(marshal.dumps(code))
        os.rename(part, name)  # noqa: PTH104
    except OSError:
        return
