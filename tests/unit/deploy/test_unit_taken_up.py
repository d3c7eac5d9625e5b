"""A file that was written after its service has read it is found, whichever run wrote it."""

import os
import subprocess
import time

import pytest

from tests.support.deploy_code import load

module = load("plugins/modules/unit_taken_up_info.py")

AGO_S = 100.0


def told(monkeypatch, state="active"):
    """systemctl, which says that a service has started AGO_S ago and was reloaded half that time ago."""

    def show(argv, **_):
        now = time.monotonic()
        times = {module.STARTED: now - AGO_S, module.CHANGED: now - AGO_S / 2}
        name = next(each for each in times if f"ActiveState,{each}" in " ".join(argv))
        said = f"ActiveState={state}\n{name}={int(times[name] * module.US)}\n"
        return subprocess.CompletedProcess(argv, 0, said, "")

    monkeypatch.setattr(module.subprocess, "run", show)


def written(path, ago_s):
    path.write_text("x")
    os.utime(path, (time.time() - ago_s, time.time() - ago_s))
    return str(path)


@pytest.mark.parametrize(
    ("ago_s", "by_reload", "left"),
    [
        (AGO_S + 5, False, False),
        (AGO_S - 5, False, True),
        (AGO_S - 5, True, False),
        (AGO_S / 2 - 5, True, True),
    ],
)
def test_a_file_is_left_when_it_was_written_after_the_start_or_the_reload(
    monkeypatch, tmp_path, ago_s, by_reload, left
):
    told(monkeypatch)
    file = written(tmp_path / "prometheus.yml", ago_s)
    since = module.taken_up_at("prometheus.service", by_reload)
    assert module.left_since([file, str(tmp_path / "missing")], since) == ([file] if left else [])


@pytest.mark.parametrize("state", ["inactive", "failed", "activating"])
def test_a_service_that_does_not_run_reads_them_when_it_starts(monkeypatch, state):
    told(monkeypatch, state)
    assert module.taken_up_at("prometheus.service", by_reload=False) is None
