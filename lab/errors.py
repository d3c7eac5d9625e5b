"""The lab's errors: each is one line for the operator and carries the exit code of the command."""

from __future__ import annotations


class LabError(Exception):
    """Something the lab could not do; the text says what and, where it is known, what to do."""

    exit_code = 1


class UsageError(LabError):
    """The request or the machine is not fit for it: not root, a package missing, an unknown host."""

    exit_code = 2


class CommandFailedError(LabError):
    """A program the lab runs ended with an error or not at all in its time."""

    def __init__(self, argv: list[str], returncode: int | None, output: str) -> None:
        reason = "did not end in time" if returncode is None else f"exit code {returncode}"
        tail = " / ".join(line.strip() for line in output.strip().splitlines()[-3:])
        super().__init__(f"{' '.join(argv)}: {reason}" + (f": {tail}" if tail else ""))
        self.argv = argv
        self.returncode = returncode
        self.output = output
