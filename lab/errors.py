"""The lab's errors. Each is one line for the operator and carries the command's exit code."""

from __future__ import annotations


class LabError(Exception):
    """The lab could not do something. The text says what and, where known, how to fix it."""

    exit_code = 1


class UsageError(LabError):
    """The request is invalid, or the machine unsuitable: not root, a missing package, an unknown host."""

    exit_code = 2


class CommandFailedError(LabError):
    """A program that the lab runs failed or timed out."""

    def __init__(self, argv: list[str], returncode: int | None, output: str) -> None:
        reason = "did not end in time" if returncode is None else f"exit code {returncode}"
        tail = " / ".join(line.strip() for line in output.strip().splitlines()[-3:])
        super().__init__(f"{' '.join(argv)}: {reason}" + (f": {tail}" if tail else ""))
        self.argv = argv
        self.returncode = returncode
        self.output = output
