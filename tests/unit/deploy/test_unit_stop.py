"""How unit_stop stops a unit for a while: what systemd is told, and in which order.

A systemctl and a systemd-run of the test's own write down what they are told. A unit whose file is there runs.
"""

import os

import pytest

from tests.support.deploy_code import load

module = load("plugins/modules/unit_stop.py")

UNIT, TIMER = "landline-broker@1.service", "landline-return-landline-broker-1"
SET = (
    f"systemd-run --quiet --collect --unit={TIMER} --on-active=60 --timer-property=AccuracySec=1s "
    f"systemctl --no-block start {UNIT}"
)
FORGET = f"systemctl stop {TIMER}.timer {TIMER}.service"
SYSTEMCTL = """#!/bin/sh
for last; do :; done
case "$1" in
show) [ -e "{here}/$last" ] && echo activating || echo inactive;;
*) echo "systemctl $*" >>{here}/told; rm -f "{here}/$last";;
esac
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The directory with a file for each unit that runs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "systemctl": SYSTEMCTL,
        "systemd-run": '#!/bin/sh\necho "systemd-run $*" >>{here}/told\n',
    }.items():
        (programs / name).write_text(text.replace("{here}", str(tmp_path)))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "told").write_text("")
    return tmp_path


def test_systemd_is_to_start_it_again_before_it_is_stopped(host):
    (host / UNIT).touch()
    assert module.stop(UNIT, 60) is True
    assert (host / "told").read_text().splitlines() == [FORGET, SET, f"systemctl stop {UNIT}"]


def test_one_that_an_earlier_call_has_stopped_stays_down_for_the_whole_time_again(host):
    (host / f"{TIMER}.timer").touch()
    assert module.stop(UNIT, 60) is False
    assert (host / "told").read_text().splitlines() == [FORGET, SET, f"systemctl stop {UNIT}"]


def test_one_that_somebody_else_has_stopped_is_left_alone(host):
    assert module.stop(UNIT, 60) is False
    assert (host / "told").read_text() == ""
