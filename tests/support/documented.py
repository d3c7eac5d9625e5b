"""The commands in the documentation: its blocks of code, parsed as a shell would.

A fence names its language. In `console` the lines after a prompt (`$`, or `#` for root) are commands and the
rest is output. In `sh`, and in indented blocks, all lines are commands. Every other language is only shown.
`documented_plan` and the tests decide what is done with the commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

SHOWN = {"json", "python", "text", "yaml"}
_PROMPT = re.compile(r"[$#] (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """One command as written; ``line`` is its first line, from 1."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"

    @property
    def bare(self) -> str:
        """Without comments and with single blanks: the key of the plan."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=False, punctuation_chars="|")
        lexer.whitespace_split = True
        return " ".join(lexer)


def documents(root: Path) -> list[Path]:
    """README, CONTRIBUTING and all documents in docs/."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def commands_of(file: str, markdown: str) -> Iterator[Command]:
    """The commands of a document, in order. Raises ValueError for a fence without a known language."""
    for token in MarkdownIt("commonmark").parse(markdown):
        if token.type not in {"fence", "code_block"}:
            continue
        assert token.map is not None
        first = token.map[0] + (2 if token.type == "fence" else 1)
        language = token.info.strip() if token.type == "fence" else "sh"
        if language in SHOWN:
            continue
        if language not in {"console", "sh"}:
            raise ValueError(
                f"{file}:{first - 1}: a fence is {language!r}: say console, sh or one of {sorted(SHOWN)}"
            )
        for line, text in _joined(token.content.splitlines(), first):
            if language == "sh":
                yield Command(file, line, text)
            elif prompted := _PROMPT.fullmatch(text):
                yield Command(file, line, prompted[1])


def _joined(lines: list[str], first: int) -> Iterator[tuple[int, str]]:
    """Logical lines: an open quote or a backslash at the end continues on the next line."""
    begun: list[str] = []
    for number, line in enumerate(lines, first):
        begun.append(line)
        text = "\n".join(begun)
        if text.endswith("\\") or _is_open(text):
            continue
        if text.strip():
            yield number - len(begun) + 1, text
        begun = []
    if begun:
        raise ValueError(f"line {first}: the block ends inside a command: {begun[0]}")


def _is_open(text: str) -> bool:
    comment_free = text.removeprefix("# ") if text.startswith("# ") else text
    try:
        shlex.split(comment_free, comments=True)
    except ValueError:
        return True
    return False
