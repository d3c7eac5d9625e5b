"""Run one program and return its output, or raise `CommandFailedError`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from lab.errors import CommandFailedError

Completed = subprocess.CompletedProcess[str]

DEFAULT_TIMEOUT_S = 60.0


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    stdin: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Run `argv` and capture its text output. With `check`, raises `CommandFailedError` on failure."""
    command = [str(part) for part in argv]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=None if env is None else dict(env),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailedError(command, None, f"waited {timeout_s:g} s") from error
    except FileNotFoundError as error:
        raise CommandFailedError(command, 127, str(error)) from error
    if check and done.returncode != 0:
        raise CommandFailedError(command, done.returncode, done.stderr or done.stdout)
    return done
