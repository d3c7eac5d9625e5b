"""The broker's wheel: pure Python, or with the modules in it that ``python -m tools.compiled`` has compiled.

``LANDLINE_COMPILED`` names the directory with them. They fit one Python, one machine, and the C library that they
were linked with or a newer one: the wheel's name says so, and pip takes the pure one elsewhere.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DIRECTORY = "LANDLINE_COMPILED"


class CompiledModules(BuildHookInterface[Any]):
    """Adds what is compiled, and what that was compiled from (`broker.utils.compiled`)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling passes both by position)
        if DIRECTORY not in os.environ:
            return
        compiled = Path(os.environ[DIRECTORY])
        paths = [
            *compiled.glob("*.so"),
            *(compiled / "broker").rglob("*.so"),
            compiled / "broker/compiled.json",
        ]
        build_data["force_include"] = {str(path): str(path.relative_to(compiled)) for path in paths}
        build_data["pure_python"] = False
        build_data["tag"] = tag()


def tag() -> str:
    """The tag of wheels with code that was compiled here, for a C library not older than this machine's."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name, libc = platform.libc_ver()
    system = f"manylinux_{libc.replace('.', '_')}" if name == "glibc" else "linux"
    return f"{python}-{python}-{system}_{platform.machine()}"
