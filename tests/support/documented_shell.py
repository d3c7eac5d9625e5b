"""A shell like that of a user who has just logged in, in a lab's network; documented commands run in it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab import Lab
from rig.wait import wait_until
from tests.support.documented_plan import placed

ROOT = Path(__file__).resolve().parents[2]
COMMAND_TIMEOUT_S = 300
SIGN_TIMEOUT_S = 300


class Shell:
    """A shell in the checkout. No Python environment is active, and only the lab's name is set."""

    def __init__(self, lab: Lab, scratch: Path) -> None:
        self.lab = lab
        self.scratch = scratch
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.environ["HOME"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "XDG_DATA_HOME": str(scratch / "share"),
            "LAB": lab.name,
        }

    def placed(self, text: str) -> str:
        """The command with this lab and this test's directories."""
        return placed(text.replace("{scratch}", str(self.scratch)), self.lab.name, str(self.scratch))

    def run(self, text: str) -> str:
        """Runs it to its end; returns its output. Raises when it fails."""
        with self._started(text, self.scratch / "output") as process:
            try:
                code = process.wait(COMMAND_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = -1
        printed = (self.scratch / "output").read_text(errors="replace")
        assert code == 0, f"{text}\nended with {code}:\n{printed[-3000:]}"
        return printed

    @contextmanager
    def kept_running(self, text: str, sign: str) -> Iterator[Path]:
        """Runs a command until its sign appears, and on until the block ends; then ends it like ^C.

        The sign is a printed word, or a new Parquet file in a directory. Yields the file of its output.
        """
        output, began = self.scratch / f"output-{abs(hash(text))}", time.time()
        with self._started(text, output) as process:

            def told() -> str:
                return output.read_text(errors="replace")

            def works() -> bool:
                if not sign.startswith("/"):
                    return sign in told()
                return any(path.stat().st_mtime > began for path in Path(sign).rglob("*.parquet"))

            wait_until(
                lambda: process.poll() is not None or works(),
                timeout=SIGN_TIMEOUT_S,
                interval=0.2,
                what=lambda: told()[-3000:],
            )
            assert process.poll() is None, f"{text}\nended with {process.returncode}:\n{told()[-3000:]}"
            yield output
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)

    @contextmanager
    def _started(self, text: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
        """In its own process group, which is ended at the end of the block."""
        with output.open("wb") as file:
            process = subprocess.Popen(
                # ^C must work even if the test run itself is in the background, where it is ignored.
                [
                    "/usr/bin/env",
                    "--default-signal=INT",
                    "/bin/bash",
                    "-euo",
                    "pipefail",
                    "-c",
                    self.placed(text),
                ],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
