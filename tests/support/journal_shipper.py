"""The journal shipper under test: its module, and a file that replaces journald's journal."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
SHIPPER = ROOT / "roles" / "journal_shipper" / "files" / "journal_shipper.py"
BOOT = "333355a5c8a84b1bbfdb66e7f7ba178d"
MACHINE = "db8f064954874867b4cb7ed3bc081f5d"

# A journalctl with the options that the shipper uses, over a growing file. Its `tail` ends with the shipper.
_JOURNALCTL = """\
#!{python}
import json, os, subprocess, sys
parent = os.getppid()
options = dict(word.partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
matches = dict(word.partition("=")[::2] for word in sys.argv[1:] if not word.startswith("--"))
assert options.pop("--output") == "json" and "--quiet" in options, sys.argv
after, lines = options.get("--after-cursor"), options.get("--lines")
with open({file!r}) as file:
    newest = file.readlines()[-1]
    end = file.tell()
if lines == "1":
    print(newest, end="")
    sys.exit()
assert "--follow" in options and ("--no-tail" in options or lines == "0"), sys.argv
if "--merge" not in options:  # as journalctl: to follow is to follow this boot
    matches["_BOOT_ID"] = json.loads(newest)["_BOOT_ID"]
first = end + 1 if lines == "0" else 1
command = ["tail", "--follow", f"--bytes=+{{first}}", f"--pid={{parent}}", {file!r}]
skipping = bool(after)
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
    for line in tail.stdout:
        entry = json.loads(line)
        if not skipping and all(entry[name] == value for name, value in matches.items()):
            sys.stdout.write(line)
            sys.stdout.flush()
        skipping = skipping and entry["__CURSOR"] != after
"""


def load_shipper() -> ModuleType:
    """Loads the program as a module, from the role's directory."""
    spec = importlib.util.spec_from_file_location("journal_shipper", SHIPPER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(SHIPPER.parent) not in sys.path:
        sys.path.append(str(SHIPPER.parent))  # as Python does for a program
    # dataclasses look up their module by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class FileJournal:
    """Entries in a file, and a ``journalctl`` that reads them."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "journal.json"
        self._file.touch()
        self.journalctl = directory / "journalctl"
        self.journalctl.write_text(_JOURNALCTL.format(python=sys.executable, file=str(self._file)))
        self.journalctl.chmod(0o755)
        self._number = 0

    def write(self, count: int, **fields: Any) -> list[str]:
        """Adds entries and returns their cursors."""
        entries = [self._entry(fields) for _ in range(count)]
        with self._file.open("a") as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in entries))
        return [entry["__CURSOR"] for entry in entries]

    def _entry(self, fields: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        return {
            "__CURSOR": f"s=d9d8;i={self._number:x};b={BOOT};m=1;t=1;x=1",
            "__REALTIME_TIMESTAMP": str(time.time_ns() // 1000),
            "_BOOT_ID": BOOT,
            "_MACHINE_ID": MACHINE,
            "_HOSTNAME": "h1",
            "MESSAGE": f"message {self._number}",
        } | fields
