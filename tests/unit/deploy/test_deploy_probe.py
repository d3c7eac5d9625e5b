"""What a deploy costs clients is measured by a probe that never fails it, and told in three lines and a page."""

import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rig.wait import wait_until
from tests.support.deploy_code import ROOT, load

SCRIPT = ROOT / "roles/broker/files/deploy_probe.py"
probe = load("roles/broker/files/deploy_probe.py")


def findings(**more):
    found = probe.Findings()
    found.began, found.stopped = 100.0, 110.0
    found.written = {0: [100.1, 102.0, 109.9], 1: [100.1, 100.2]}
    found.read = {0: [100.2, 109.9], 1: [100.3, 109.9]}
    found.latencies, found.acked, found.seen = [0.001 * n for n in range(1, 101)], {1, 2, 3}, {1, 2}
    for key, value in more.items():
        setattr(found, key, value)
    return found.report()


def test_the_longest_gap_counts_from_the_beginning_and_to_the_end():
    report = findings()
    assert report["longest_gap_writing_s"] == pytest.approx(9.8), "partition 1 got no answer until the end"
    assert report["longest_gap_reading_s"] == pytest.approx(9.7)
    assert findings(written={0: []})["longest_gap_writing_s"] == 10
    assert [row["seconds"] for row in report["gaps"] if row["what"] == "writing"] == [9.8, 7.9, 1.9]
    assert (report["acknowledged"], report["not_read"], report["failed"]) == (3, 1, 0)
    assert (report["p50_ms"], report["p99_ms"], report["slowest_ms"]) == (51, 100, 100)


def test_it_is_told_in_three_lines_and_on_a_page_that_needs_nothing_from_outside():
    report = findings(failed=["<b>no & none"])
    lines = probe.in_lines(report, Path("/d/cost.html"))
    assert len(lines) == 3
    assert "3 records acknowledged, 1 failed, 1 not read" in lines[0]
    assert "longest gap 9.80 s writing, 9.70 s reading; 3 gaps" in lines[1]
    assert lines[2].endswith("page: /d/cost.html")
    page = probe.page(report)
    assert "&lt;b&gt;no &amp; none" in page
    assert "src=" not in page
    assert "href=" not in page
    assert probe.in_lines({"skipped": "why"}, Path()) == ["What it cost clients was not measured: why"]


def test_a_client_has_the_login_of_the_inventory():
    settings = {"mode": "sasl_ssl", "bootstrap": "a:1", "trusted": "PEM", "user": "u", "password": "p"}
    found = probe.librdkafka({**settings, "mechanism": "SCRAM-SHA-512"})
    assert found["security.protocol"] == "SASL_SSL"
    assert (found["ssl.ca.pem"], found["sasl.username"], found["sasl.password"]) == ("PEM", "u", "p")
    assert "ssl.ca.pem" not in probe.librdkafka({**settings, "mode": "none"})


@pytest.fixture
def unreached(monkeypatch, tmp_path):
    """How the probe runs where no broker is: with its seconds cut short."""
    settings = json.dumps(
        {"mode": "none", "bootstrap": "127.0.0.1:9", "trusted": "", "user": "", "password": ""}
    )

    def run(verb):
        code = f"import runpy, sys; sys.argv = ['x', {verb!r}, {str(tmp_path / 'out')!r}]; "
        cut = (
            SCRIPT.read_text()
            .replace("TRY_S = 5.0", "TRY_S = 0.5")
            .replace("READY_S = 10.0", "READY_S = 0.5")
        )
        (tmp_path / "probe.py").write_text(cut)
        return subprocess.run(
            [
                sys.executable,
                "-c",
                f"{code}runpy.run_path({str(tmp_path / 'probe.py')!r}, run_name='__main__')",
            ],
            input=settings,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return run


def test_where_no_broker_is_reached_it_says_so_and_goes_on(unreached, tmp_path):
    assert unreached("begin") == ""
    assert unreached("end").startswith("What it cost clients was not measured: ")
    assert (
        "127.0.0.1:9, asked from this machine"
        in json.loads((tmp_path / "out/cost.json").read_text())["skipped"]
    )


def test_a_listener_or_a_user_that_comes_with_the_roll_is_waited_for_as_long_as_the_run_goes_on():
    answers = iter([probe.Skip("refused"), probe.Skip("no such user"), 3])

    def ask():
        answer = next(answers)
        if isinstance(answer, probe.Skip):
            raise answer
        return answer

    going = iter([True] * 5)
    assert probe.reached(ask, going) == 3
    assert list(going) == [True] * 2, "what is left of the run is measured"
    answers = iter([probe.Skip("refused"), probe.Skip("no such user")])
    with pytest.raises(probe.Skip, match="no such user"):
        probe.reached(ask, iter([True] * 2))
    with pytest.raises(probe.Skip, match="the run ended"):
        probe.reached(ask, iter([]))


def test_it_ends_with_the_run_that_began_it(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as caller:
        goes_on = probe.goes_on(tmp_path, caller.pid)
        assert next(goes_on)
        caller.kill()
        caller.wait()
        wait_until(lambda: next(goes_on, None) is None, 30, interval=0.2)
    assert next(probe.goes_on(tmp_path, probe.os.getpid()))
    (tmp_path / "end").touch()
    assert next(probe.goes_on(tmp_path, probe.os.getpid()), None) is None


def test_of_two_hosts_that_begin_it_the_second_waits_for_the_probe_of_the_first(tmp_path, monkeypatch):
    def fork():
        raise AssertionError("a second probe")

    monkeypatch.setattr(probe.os, "fork", fork)
    monkeypatch.setattr(probe.sys, "stdin", io.StringIO("{}"))
    threading.Timer(0.3, (tmp_path / "measuring").touch).start()
    began = time.monotonic()
    probe.begin(tmp_path)
    assert 0.2 < time.monotonic() - began < probe.READY_S
    (tmp_path / "measuring").unlink()
    (tmp_path / "cost.json").touch()
    monkeypatch.setattr(probe.sys, "stdin", io.StringIO("{}"))
    probe.begin(tmp_path)


def test_a_change_waits_for_the_first_record_no_longer_than_some_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "READY_S", 0.3)
    began = time.monotonic()
    probe.await_measuring(tmp_path)
    assert 0.3 <= time.monotonic() - began < 5
