import threading

import pytest

from lab.errors import LabError, UsageError
from lab.links import Direction, LinkFault, LinkFaultKind
from lab.state import Bind, LabFiles, LabState, locked

FULL = LabState(
    "ci",
    "/cache/image-1",
    3,
    (Bind("/srv/spark", "/opt/spark"), Bind("/srv/shared", "/shared", writable=True)),
    256,
    (
        LinkFault(LinkFaultKind.CUT, "h1", "h2", Direction.OUT),
        LinkFault(LinkFaultKind.LOSE, "h3", amount=12.5),
    ),
)


@pytest.fixture
def files(tmp_path):
    files = LabFiles(tmp_path, "ci")
    files.home.mkdir()
    return files


def test_a_state_is_read_as_it_was_written(files):
    files.save(FULL)
    assert files.load() == FULL


def test_a_lab_that_was_never_made_has_no_state(tmp_path):
    assert LabFiles(tmp_path, "nobody").load() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}', '{"version": 1, "name": "ci"}'])
def test_a_damaged_state_is_one_line_that_says_what_to_do(files, text):
    files.json.write_text(text)
    with pytest.raises(LabError, match="lab down") as caught:
        files.load()
    assert "\n" not in str(caught.value)


def test_a_bind_names_two_absolute_paths(tmp_path):
    assert Bind.parse(f"{tmp_path}/:/opt/spark") == Bind(str(tmp_path), "/opt/spark")


@pytest.mark.parametrize("text", ["", "/tmp", "relative:/x", "/tmp:relative", "/tmp:/a:ro", "/not/there:/x"])
def test_other_binds_are_refused(text):
    with pytest.raises(UsageError, match="bad bind"):
        Bind.parse(text)


def test_a_lock_is_held_by_one_at_a_time_and_its_file_is_gone_afterwards(tmp_path):
    path, inside, most = tmp_path / "run/x.lock", [], []

    def work():
        for _ in range(50):
            with locked(path):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 200
    assert max(most) == 1
    assert not path.exists()
