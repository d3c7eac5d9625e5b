"""A dead broker's session is ended; whatever speaks for its life keeps it."""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import pytest

from broker.log.dirs.dir_lock import take_lock
from broker.server.registration.deregister import deregister
from broker.server.registration.session_file import FILE_NAME, SessionFile
from broker.utils.process_identity import ProcessIdentity
from broker.zookeeper.connect_string import server_addresses
from broker.zookeeper.session_end import Session, SessionEnd, end_session

SESSION = Session("zk1:2181,zk2:2181", -0x7FFF_0123, bytes(range(16)))


class Ensemble:
    """Ends sessions as ``end_session`` does, and remembers which."""

    def __init__(self, outcome=SessionEnd.ENDED):
        self.outcome = outcome
        self.asked = []

    def __call__(self, session, timeout_s):
        self.asked.append(session)
        return self.outcome


@pytest.fixture
def log_dir(tmp_path):
    (tmp_path / ".lock").touch()
    return tmp_path


def note_of_dead_process(log_dir):
    """What a process that has ended left in the directory."""
    program = (
        "import sys, pathlib; from broker.server.registration.session_file import SessionFile; "
        "from broker.zookeeper.session_end import Session; "
        f"SessionFile(pathlib.Path(sys.argv[1])).write(Session({SESSION.servers!r}, {SESSION.session_id}, "
        f"bytes.fromhex({SESSION.password.hex()!r})))"
    )
    subprocess.run([sys.executable, "-c", program, str(log_dir)], check=True)


def change_note(log_dir, **changes):
    path = log_dir / FILE_NAME
    values = dict(line.split("=", 1) for line in path.read_text().splitlines())
    values.update({key.replace("_", "."): str(value) for key, value in changes.items()})
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


def test_a_dead_brokers_session_is_ended(log_dir):
    note_of_dead_process(log_dir)
    end = Ensemble()
    report = deregister([log_dir], end)
    assert end.asked == [SESSION]
    assert (report.level, report.event) == ("warning", "dead_broker_deregistered")
    assert report.fields["session"] == "0xffffffff8000fedd"


def test_a_process_that_runs_keeps_its_session(log_dir):
    SessionFile(log_dir).write(SESSION)
    end = Ensemble()
    report = deregister([log_dir], end)
    assert end.asked == []
    assert report.event == "broker_not_deregistered"
    assert str(os.getpid()) in report.fields["reason"]


@pytest.mark.parametrize(
    "change", [{"pid_started": 1}, {"boot_id": "another"}], ids=["another start", "another boot"]
)
def test_a_pid_that_is_used_again_does_not_save_it(change, log_dir):
    SessionFile(log_dir).write(SESSION)
    change_note(log_dir, **change)
    end = Ensemble()
    assert deregister([log_dir], end).event == "dead_broker_deregistered"
    assert end.asked == [SESSION]


def test_a_process_that_its_parent_has_not_reaped_is_dead():
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = ProcessIdentity.of(child.pid)
        assert identity.is_running()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not identity.is_running()


@pytest.mark.parametrize("held", ["first", "second"])
def test_a_lock_on_any_log_directory_keeps_the_session(held, log_dir, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    note_of_dead_process(log_dir)
    lock = take_lock(log_dir if held == "first" else second)
    end = Ensemble()
    try:
        report = deregister([log_dir, second], end)
        assert end.asked == []
        assert "lock" in report.fields["reason"]
    finally:
        os.close(lock)
    assert deregister([log_dir, second], end).event == "dead_broker_deregistered"


def test_kafkas_kind_of_lock_keeps_the_session_too(log_dir):
    note_of_dead_process(log_dir)
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(log_dir / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"locked\n"
        end = Ensemble()
        report = deregister([log_dir], end)
        holder.communicate()
    assert end.asked == []
    assert "lock" in report.fields["reason"]


def test_nothing_noted_is_nothing_to_do(log_dir):
    end = Ensemble()
    assert deregister([log_dir], end).event == "nothing_to_deregister"
    assert deregister([log_dir / "absent"], end).event == "nothing_to_deregister"
    assert end.asked == []


@pytest.mark.parametrize("text", ["", "1234abcd\n", "version=2\n", "version=1\npid=x\n", "\\u12", "\0" * 100])
def test_a_note_of_no_use_is_none(text, log_dir):
    (log_dir / FILE_NAME).write_text(text)
    assert SessionFile(log_dir).read() is None


def test_an_ensemble_that_is_away_is_told_in_one_line_with_what_happens_next(log_dir):
    note_of_dead_process(log_dir)
    report = deregister([log_dir], Ensemble(SessionEnd.UNREACHABLE))
    assert report.level == "warning"
    assert SESSION.servers in report.fields["reason"]
    assert "zookeeper.session.timeout.ms" in report.fields["action"]


def test_a_name_server_that_does_not_answer_holds_nobody_up(log_dir):
    note_of_dead_process(log_dir)
    never = threading.Event()
    began = time.monotonic()
    report = deregister([log_dir], lambda *_: never.wait(60), timeout_s=0.1)
    assert report.event == "broker_not_deregistered"
    assert time.monotonic() - began < 30
    never.set()


def test_the_note_is_its_owners_only_and_reads_as_written(log_dir):
    file = SessionFile(log_dir)
    file.write(SESSION)
    assert stat.S_IMODE((log_dir / FILE_NAME).stat().st_mode) == 0o600
    note = file.read()
    assert note.session == SESSION
    assert note.owner == ProcessIdentity.current()


def test_only_the_ended_sessions_own_note_is_cleared(log_dir):
    file = SessionFile(log_dir)
    file.write(SESSION)
    file.clear(SESSION.session_id + 1)
    assert file.read() is not None
    file.clear(SESSION.session_id)
    assert file.read() is None


def test_nothing_slow_is_loaded_before_the_session_ends(log_dir):
    program = (
        "import sys; import broker.__main__; import broker.server.registration.deregister; "
        "assert 'kazoo' not in sys.modules; "
        "import kazoo.protocol.serialization; "
        "slow = {'kazoo.client', 'kio', 'structlog', 'asyncio', 'dataclasses', 'json', 'logging'}; "
        "print(sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


# --- end_session against servers that answer as told


def test_servers_of_a_connect_string():
    assert server_addresses("a:1, b:2,c/chroot/x") == [("a", 1), ("b", 2), ("c", 2181)]
    assert server_addresses("[::1]:2182,[::2]") == [("::1", 2182), ("::2", 2181)]


def frame(payload):
    return struct.pack(">i", len(payload)) + payload


ALIVE = frame(struct.pack(">iiqi", 0, 4000, SESSION.session_id, 16) + bytes(17))
UNKNOWN = frame(struct.pack(">iiqi", 0, 0, 0, 16) + bytes(17))
CLOSED = frame(struct.pack(">iqi", 1, 77, 0))


@contextmanager
def server(*lives):
    """A server that gives each connection in turn its answers, one for each frame that comes, and then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for answers in lives:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                for answer in answers:
                    connection.recv(4096)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def ended(servers, timeout_s=20.0):
    return end_session(SESSION._replace(servers=servers), timeout_s)


def test_an_answered_close_ends_the_session():
    with server([ALIVE, CLOSED]) as address:
        assert ended(f"{address}/chroot") is SessionEnd.ENDED


def test_a_session_that_is_not_known_is_gone():
    with server([UNKNOWN]) as address:
        assert ended(address) is SessionEnd.GONE


def test_a_close_whose_answer_was_lost_counts_as_ended():
    with server([ALIVE, b""], [UNKNOWN]) as address:
        assert ended(address) is SessionEnd.ENDED


def test_nonsense_and_refusals_lead_to_the_next_server():
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        refusing = f"127.0.0.1:{gone.getsockname()[1]}"
    with server([b"HTTP/1.1 400 Bad"], [b""]) as nonsense, server([ALIVE, CLOSED], [ALIVE, CLOSED]) as good:
        assert ended(f"{refusing},{nonsense},{good}") is SessionEnd.ENDED


def test_a_frozen_ensemble_is_given_up_in_time():
    with closing(socket.create_server(("127.0.0.1", 0))) as frozen:
        began = time.monotonic()
        assert ended(f"127.0.0.1:{frozen.getsockname()[1]}", 0.3) is SessionEnd.UNREACHABLE
        assert time.monotonic() - began < 30


def test_no_servers_at_all_are_unreachable():
    assert ended("", 0.1) is SessionEnd.UNREACHABLE
    assert ended("host:port", 0.1) is SessionEnd.UNREACHABLE
