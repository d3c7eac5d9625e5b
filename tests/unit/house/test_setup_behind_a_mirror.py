"""`make setup` with pip configured for a mirror: uv, which reads none of that, is told."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTED = ("UV_DEFAULT_INDEX", "UV_INDEX", "SSL_CERT_FILE")


@pytest.fixture
def setup(tmp_path):
    """Runs the script in a checkout whose Python is this one and whose uv writes down its environment."""
    for directory in ("tools", ".venv/bin"):
        (tmp_path / directory).mkdir(parents=True)
    shutil.copy(ROOT / "tools/setup", tmp_path / "tools/setup")
    (tmp_path / "requirements.lock").write_text("uv==1\n")
    python, uv = tmp_path / ".venv/bin/python", tmp_path / ".venv/bin/uv"
    # It installs nothing: uv is there.
    python.write_text(f'#!/bin/sh\n[ "$3" = install ] || exec {shutil.which("python3")} "$@"\n')
    uv.write_text(f"#!/bin/sh\nenv >{tmp_path}/told\n")
    for program in (python, uv):
        program.chmod(0o755)

    def run(config="", **environment):
        (tmp_path / "pip.conf").write_text(config)
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "SSL_"))
        }
        given = {**clean, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), **environment}
        subprocess.run([tmp_path / "tools/setup"], env=given, check=True, capture_output=True)
        told = dict(line.partition("=")[::2] for line in (tmp_path / "told").read_text().splitlines())
        return tuple(told.get(name) for name in NOTED)

    return run


CONFIG = "[global]\nindex-url = https://file/simple\ncert = /etc/ssl/own.pem\n"


def test_uv_uses_the_mirror_and_the_ca_of_pips_environment_and_configuration(setup):
    assert setup(CONFIG, PIP_INDEX_URL="https://a/simple", PIP_EXTRA_INDEX_URL="https://b https://c") == (
        "https://a/simple",
        "https://b https://c",
        "/etc/ssl/own.pem",
    )


def test_uvs_own_variables_come_first(setup):
    assert setup(CONFIG, UV_DEFAULT_INDEX="https://uv/simple") == (
        "https://uv/simple",
        None,
        "/etc/ssl/own.pem",
    )
