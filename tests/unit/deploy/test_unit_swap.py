"""How unit_swap lets a unit take another one's place, and what it does when the other one does not start.

A systemctl of the test's own writes down what it is told, and fails where the test wants it to.
"""

import grp
import os
import pwd

import pytest

from tests.support.deploy_code import load

module = load("plugins/modules/unit_swap.py")

ME = {"user": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Returns the commands so far. The one in the file `fails` fails."""
    told, fails = tmp_path / "told", tmp_path / "fails"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$*" >>{told}\n[ "$*" != "$(cat {fails} 2>/dev/null)" ] || {{ echo no >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return lambda: told.read_text().splitlines() if told.exists() else []


@pytest.fixture
def params(tmp_path):
    data = tmp_path / "data"
    (data / "orders-0").mkdir(parents=True)
    (data / "meta.properties").write_text("broker.id=1\n")
    owner = {**ME, "before_user": ME["user"], "before_group": ME["group"]}
    return {
        "stop": "a.service",
        "start": "b.service",
        "dirs": [str(data)],
        "owner": owner,
        "clean_mark": "clean",
        "timeout_s": 30,
    }


def test_the_one_is_stopped_before_the_other_starts_also_at_boot(calls, params):
    assert module.swap(params)["clean"] is False
    assert calls() == [
        "stop a.service",
        "enable --quiet b.service",
        "disable --quiet a.service",
        "start b.service",
    ]


def test_that_it_stopped_in_good_order_is_seen_in_every_directory(calls, params, tmp_path):
    (tmp_path / "data" / "clean").touch()
    assert module.swap(params)["clean"] is True
    other = tmp_path / "other"
    other.mkdir()
    assert module.swap({**params, "dirs": [*params["dirs"], str(other)]})["clean"] is False


def test_one_that_does_not_start_gives_way_to_the_one_that_was_there(calls, params, tmp_path):
    (tmp_path / "fails").write_text("start b.service")
    with pytest.raises(module.SwapError, match=r"start b\.service: no\. a\.service was started again"):
        module.swap(params)
    assert calls()[-5:] == [
        "stop b.service",
        "enable --quiet a.service",
        "disable --quiet b.service",
        "reset-failed a.service",
        "start a.service",
    ]


@pytest.mark.parametrize("step", ["stop b.service", "disable --quiet b.service", "reset-failed a.service"])
def test_the_one_that_was_there_is_started_whatever_else_fails(calls, params, tmp_path, step):
    (tmp_path / "fails").write_text(step)
    assert module.put_back(params).startswith("a.service was started again")
    assert calls()[-1] == "start a.service"


def test_a_directory_that_is_a_link_changes_hands_where_it_is(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").touch()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    assert list(module.paths_in([str(tmp_path / "data")])) == [f"{tmp_path}/disk", f"{tmp_path}/disk/file"]


def test_directories_that_cannot_be_given_away_are_given_back_and_nothing_new_is_started(calls, params):
    params["owner"]["user"] = "nobody-of-this-name"
    with pytest.raises(module.SwapError, match="cannot be given to nobody-of-this-name"):
        module.swap(params)
    assert "start b.service" not in calls()
    assert calls()[-1] == "start a.service"


def test_everything_below_the_directories_changes_hands_and_links_are_not_followed(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    found = sorted(path.removeprefix(str(tmp_path)) for path in module.paths_in([str(tmp_path / "a")]))
    assert found == ["/a", "/a/b", "/a/b/file", "/a/link"]
