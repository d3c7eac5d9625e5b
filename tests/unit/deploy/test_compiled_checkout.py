"""The copy of the checkout in which tests meet compiled code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.compiled.checkout import MARK, copy_with


def test_it_has_what_git_does_not_ignore_and_the_compiled_modules(tmp_path: Path) -> None:
    root, compiled, out = tmp_path / "root", tmp_path / "compiled", tmp_path / "root" / "build" / "copy"
    for path, content in {
        "broker/log.py": "x = 1\n",
        "untracked.py": "",
        "gone.py": "",
        "build/ignored": "",
        ".gitignore": "build/\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    (root / "link").symlink_to("broker")
    for arguments in (["init", "-q"], ["add", "broker", "gone.py", "link", ".gitignore"]):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    (root / "gone.py").unlink()
    (compiled / "broker").mkdir(parents=True)
    for path in ("group.so", "broker/log.so", "broker/compiled.json", "broker/log.py"):
        (compiled / path).write_text("compiled")
    out.mkdir(parents=True)
    (out / "of-an-earlier-copy").touch()
    with pytest.raises(SystemExit, match="no copy of an earlier run"):
        copy_with(compiled, out, root)
    assert (out / "of-an-earlier-copy").exists()
    (out / MARK).touch()

    copy_with(compiled, out, root)
    found = {str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert found == {
        MARK,
        ".gitignore",
        ".venv",
        "broker/compiled.json",
        "broker/log.py",
        "broker/log.so",
        "group.so",
        "link",
        "untracked.py",
    }
    assert (out / "broker/log.py").read_text() == "x = 1\n"
    assert (out / "link").readlink() == Path("broker")
