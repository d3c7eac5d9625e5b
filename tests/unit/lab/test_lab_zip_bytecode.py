"""Bytecode of modules in zip archives, which a lab's hosts keep."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab import zip_bytecode

PLACE = Path(zip_bytecode.__file__).parent


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    directory = tmp_path / "kept"
    directory.mkdir()
    return directory


def imported(archive: Path, source: str, kept: Path) -> str:
    """What a new process prints that imports a module with this source from the archive."""
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("told.py", source)
    begin = f"import sys; sys.path[:0] = [{str(PLACE)!r}, {str(archive)!r}]"
    program = f"{begin}; import zip_bytecode; zip_bytecode.keep_in({str(kept)!r}); import told; told.tell()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def telling(word: str) -> str:
    return f"def tell():\n    print({word!r}, tell.__code__.co_filename)\n"


def test_the_same_source_in_another_archive_is_compiled_no_second_time(tmp_path: Path, kept: Path) -> None:
    assert imported(tmp_path / "1.zip", telling("one"), kept) == f"one {tmp_path}/1.zip/told.py\n"
    (file,) = kept.iterdir()
    written = file.stat()
    assert imported(tmp_path / "2.zip", telling("one"), kept) == f"one {tmp_path}/2.zip/told.py\n"
    assert [found.stat().st_ino for found in kept.iterdir()] == [written.st_ino]
    # What is kept is what runs: here, another module's.
    imported(tmp_path / "3.zip", telling("two"), kept)
    (other,) = set(kept.iterdir()) - {file}
    file.write_bytes(other.read_bytes())
    assert imported(tmp_path / "4.zip", telling("one"), kept) == f"two {tmp_path}/4.zip/told.py\n"


def test_other_source_under_the_same_name_is_compiled(tmp_path: Path, kept: Path) -> None:
    archive = tmp_path / "a.zip"
    assert [imported(archive, telling(word), kept).split()[0] for word in ("one", "two")] == ["one", "two"]
    assert len(list(kept.iterdir())) == 2


def test_where_nothing_can_be_kept_modules_are_imported_all_the_same(tmp_path: Path) -> None:
    assert imported(tmp_path / "a.zip", telling("one"), tmp_path / "missing").startswith("one ")
