"""Two wheels of the broker from one tree: pip takes the compiled one where it fits, and the pure one elsewhere."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest

from hatch_build import tag
from tools import wheels


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both, the compiled one with something in place of compiled code: compiling takes minutes."""
    compiled = tmp_path_factory.mktemp("compiled")
    (compiled / "broker/network").mkdir(parents=True)
    for path in ("landline__mypyc.so", "broker/network/processor.so", "broker/compiled.json"):
        (compiled / path).write_text("compiled")
    out = tmp_path_factory.mktemp("wheels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheels, "compiled_modules", lambda: compiled)
        for wheel in wheels.build_wheels(out, compiled=True):
            shutil.copy2(wheel, out)
    return out


def taken(made, *options):
    """The name of the wheel that pip takes."""
    listed = made / "requirements.txt"
    (pure,) = made.glob("*-any.whl")
    listed.write_text(f"landline=={pure.name.split('-')[1]}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps",
         "--no-index", "--report=-", f"--find-links={made}", f"--requirement={listed}", *options],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)["install"][0]["download_info"]["url"].rpartition("/")[2]


def test_both_have_the_sources_and_one_has_the_compiled_code_and_what_it_was_compiled_from(made):
    names = {wheel.name: set(zipfile.ZipFile(wheel).namelist()) for wheel in made.glob("*.whl")}
    (pure,) = (content for name, content in names.items() if name.endswith("py3-none-any.whl"))
    (compiled,) = (content for name, content in names.items() if name.endswith(f"-{tag()}.whl"))
    assert "broker/network/processor.py" in pure
    assert {name for name in compiled - pure if "dist-info" not in name} == {
        "landline__mypyc.so",
        "broker/network/processor.so",
        "broker/compiled.json",
    }
    assert {name for name in pure - compiled if "dist-info" not in name} == set()


def test_pip_takes_the_compiled_one_here(made):
    assert taken(made).endswith(f"-{tag()}.whl")


@pytest.mark.parametrize(
    "options",
    [
        ["--platform=manylinux_2_17_x86_64", "--python-version=311"],
        ["--platform=manylinux_2_36_riscv64", "--python-version=311"],
        ["--platform=manylinux_2_36_x86_64", "--python-version=314"],
    ],
    ids=["an older C library", "another machine", "another Python"],
)
def test_pip_takes_the_pure_one_where_the_compiled_one_does_not_fit(made, tmp_path, options):
    found = taken(made, "--implementation=cp", "--only-binary=:all:", f"--target={tmp_path}", *options)
    assert found.endswith("-py3-none-any.whl")


def test_an_archive_has_the_wheels_that_its_hosts_can_install(made):
    python, _, system = tag().split("-")
    machine = system.split("_", 3)[-1] if system.startswith("manylinux") else system.partition("_")[2]
    found = sorted(made.glob("*.whl"))
    assert wheels.fitting(found, f"{python}-{machine}") == found
    assert wheels.fitting(found, f"{python}-riscv64") == list(made.glob("*-any.whl"))
    assert wheels.fitting(found, f"cp399-{machine}") == list(made.glob("*-any.whl"))


def test_what_is_missing_for_compiling_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="install gcc"):
        wheels.require_compiler()
