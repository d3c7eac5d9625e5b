"""The command's arguments, and how a broker's process starts and stops: with a server that can be told to hang."""

import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker import __version__
from broker.__main__ import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_USAGE, main
from broker.log.checkpoints import HIGH_WATERMARK_CHECKPOINT, OffsetCheckpoint
from broker.log.sealed_file import replace_file
from broker.server.daemon import TRANSITIONS, Event, State
from broker.utils.compiled import MANIFEST
from broker.utils.topic_partition import TopicPartition

REPOSITORY = Path(__file__).resolve().parents[3]


def landline(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_version_is_the_projects(capsys):
    assert main(["--version"]) == EXIT_OK
    assert capsys.readouterr().out == f"landline {__version__}\n"
    assert f'\nversion = "{__version__}"\n' in (REPOSITORY / "pyproject.toml").read_text()


def test_the_version_costs_no_imports():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "broker", "--version"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"argparse", "structlog", "dataclasses", "broker.config.keys", "socket"})


def test_help_names_every_command():
    done = landline("--help")
    assert done.returncode == EXIT_OK
    for word in ("start FILE", "standalone", "check-config FILE", "--version", "78 wrong configuration"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["start"], "required: FILE"),
        (["standalone", "--port", "99999"], "'99999' is no port"),
        (["check-config", "f", "--override", "novalue"], "'novalue' is not KEY=VALUE"),
        (["may-stop"], "one of the arguments FILE --broker is required"),
        (["may-stop", "f", "--broker", "3"], "not allowed with argument"),
        (["may-stop", "--broker", "three"], "'three' is no broker's id"),
        (["may-stop", "f", "--within", "soon"], "'soon' is no number of seconds"),
        (["may-stop", "f", "--within", "-1"], "'-1' is no number of seconds"),
        (["may-stop", "f", "--within", "inf"], "'inf' is no number of seconds"),
        (["may-stop", "f", "--within", "604801"], "'604801' is more than a week"),
        (["doctor", "f", "--within", "1e300"], "'1e300' is more than a week"),
    ],
)
def test_wrong_arguments_are_told(arguments, message, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("within", ["2", "2s", "1.9173810482025146", "0.0"])
def test_seconds_are_taken_as_playbooks_and_systemd_write_them(within, tmp_path, capsys):
    assert main(["may-stop", str(tmp_path / "absent"), "--within", within]) == EXIT_CONFIG
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["may-stop", "await-return"])
def test_a_broker_that_a_deploy_installed_is_known_by_its_id(verb, capsys):
    assert main([verb, "--broker", "987654", "--for", "120s"]) == EXIT_CONFIG
    assert "/etc/landline/broker-987654.properties" in capsys.readouterr().err


def test_a_good_file_is_called_good_with_its_warnings(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=zk:2181\nlog.dirs=/d\nlog.cleaner.threads=2\n")
    assert main(["check-config", str(file)]) == EXIT_OK
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: warning: Kafka's keys that Landline does not use: log.cleaner.threads",
        f"{file}: good, 3 configs are set",
    ]


def test_files_of_a_later_release_are_found_before_a_broker_stops_for_this_one(tmp_path, capsys):
    file, logs = tmp_path / "server.properties", tmp_path / "logs"
    logs.mkdir()
    later = logs / HIGH_WATERMARK_CHECKPOINT
    file.write_text(f"zookeeper.connect=zk\nlog.dirs={logs},{tmp_path}/missing\n")
    OffsetCheckpoint(logs, later.name).write({TopicPartition("orders", 0): 7})
    assert main(["check-config", str(file)]) == EXIT_OK
    replace_file(later, b"1\n0\n")
    assert main(["check-config", str(file)]) == EXIT_CONFIG
    said = capsys.readouterr().err
    assert f"{later} has version 1, known is 0\n" in said
    assert "cannot read this: a later release wrote it" in said
    (logs / "meta.properties").write_text("version=1\nbroker.id=1\n")
    assert main(["check-config", str(file)]) == EXIT_CONFIG
    assert "this broker reads version 0" in capsys.readouterr().err


def test_a_changed_file_is_said_to_need_a_restart_or_not(tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("zookeeper.connect=zk\nlog.dirs=/d\nnum.partitions=2\n")
    new.write_text("zookeeper.connect=zk\nlog.dirs=/d\nlog.retention.hours=24\n")
    assert main(["check-config", str(new), "--since", str(old)]) == EXIT_OK
    assert capsys.readouterr().out.splitlines() == [
        f"{new}: good, 3 configs are set",
        "log.retention.hours: changed by a reload",
        "num.partitions: needs a restart",
    ]
    assert main(["check-config", str(new), "--since", str(new)]) == EXIT_OK
    assert capsys.readouterr().out.endswith(f"no config differs from {new}\n")


@pytest.mark.parametrize("command", ["check-config", "start"])
def test_a_bad_file_is_refused_with_all_its_problems(command, tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("num.io.thread=3\nbroker.id=x\n")
    assert main([command, str(file), "--override", "zookeeper.connect=zk"]) == EXIT_CONFIG
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"{file}:1: num.io.thread: is no known config. Did you mean num.io.threads?"
    assert told[1].startswith(f"{file}:2: broker.id:")
    assert told[2] == "landline: 2 problems in the configuration; nothing was started"


def test_a_file_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["start", str(tmp_path / "absent")]) == EXIT_CONFIG
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


# --- the daemon, with a server of the same interface

PROGRAM = """
import sys, threading, time
sys.path.insert(0, {repository!r})
from broker.utils.stop_signals import block_signals
block_signals()
from broker.server.daemon import Daemon, StartupErrors
from broker.utils.logging_setup import configure_logging
from broker.utils.systemd import Notifier
configure_logging()

class Cancelled(Exception): pass
class Failed(Exception): pass

class Server:
    def __init__(self, notify):
        self.notify = notify
        self.stopped = threading.Event()
    def startup(self, cancel):
        self.notify("Recovering logs: 1 of 2")
        print("starting", flush=True)
        if mode == "slow":
            cancel.wait()
            raise Cancelled()
        if mode == "late":
            cancel.wait()
        if mode == "fail":
            raise Failed("the port is in use: stop the other")
        if mode == "crash":
            raise ZeroDivisionError("planned")
        if mode == "dies":
            threading.Timer(0.2, self.stopped.set).start()
    def shutdown(self):
        self.notify("Controlled shutdown")
        print("stopping", flush=True)
        if mode == "hangs":
            threading.Event().wait()
        self.stopped.set()
        print("stopped", flush=True)
    def await_shutdown(self):
        self.stopped.wait()
    def is_alive(self):
        return True
    def reload(self):
        print("reloaded", flush=True)

mode = {mode!r}
if mode == "terminal":
    import fcntl, os, termios
    ours, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
sys.exit(Daemon(Server, StartupErrors(Cancelled, Failed), Notifier.from_environment(),
                lambda server: print("ready", flush=True), reloads=mode != "fileless").run())
"""


class Process:
    """The daemon as a process, and systemd's end of its socket."""

    def __init__(self, mode, notify_socket):
        self.notify = notify_socket
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(repository=str(REPOSITORY), mode=mode)],
            env={"NOTIFY_SOCKET": notify_socket.getsockname(), "WATCHDOG_USEC": "100000", "PATH": "/bin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # without a terminal, as by systemd
        )

    def line(self):
        return self.process.stdout.readline().strip()

    def lines_until(self, word):
        while (line := self.line()) != word:
            assert line, self.process.stderr.read()

    def told(self, word):
        """Waits for a datagram with this word."""
        while word not in (message := self.notify.recv(1000).decode()):
            pass
        return message

    def end(self):
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextmanager
def daemon(tmp_path, mode):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(60)
        running = Process(mode, channel)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.process.kill()
            running.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_broker_stops_cleanly_when_told(tmp_path, number):
    with daemon(tmp_path, "good") as running:
        assert (
            running.told("EXTEND_TIMEOUT_USEC")
            == "STATUS=Recovering logs: 1 of 2\nEXTEND_TIMEOUT_USEC=60000000"
        )
        running.told("READY=1")
        running.told("WATCHDOG=1")
        running.lines_until("ready")
        running.process.send_signal(number)
        running.told("STOPPING=1")
        running.told("EXTEND_TIMEOUT_USEC")
        code, out, _ = running.end()
    assert (code, out) == (0, "stopping\nstopped\n")


def test_stacks_are_written_on_request_and_the_broker_goes_on(tmp_path):
    with daemon(tmp_path, "good") as running:
        running.told("READY=1")
        running.lines_until("ready")
        running.process.send_signal(signal.SIGUSR2)
        assert "Thread 0x" in running.process.stderr.readline()
        # To this line, for what was read ahead of it would be in no output at the end.
        assert any("daemon.py" in line for line in iter(running.process.stderr.readline, ""))
        running.process.send_signal(signal.SIGTERM)
        code, out, _ = running.end()
    assert (code, out) == (0, "stopping\nstopped\n")


def test_a_stop_during_startup_cancels_it(tmp_path):
    with daemon(tmp_path, "slow") as running:
        running.lines_until("starting")
        running.process.send_signal(signal.SIGTERM)
        running.told("STOPPING=1")
        code, out, err = running.end()
    assert (code, out) == (0, "")
    assert "startup_cancelled" in err


def test_a_stop_that_comes_as_startup_ends_is_heeded(tmp_path):
    with daemon(tmp_path, "late") as running:
        running.lines_until("starting")
        running.process.send_signal(signal.SIGTERM)
        code, out, _ = running.end()
    assert (code, out) == (0, "stopping\nstopped\n")


def test_a_hang_up_reloads_the_file_and_stops_nothing(tmp_path):
    with daemon(tmp_path, "good") as running:
        running.lines_until("starting")
        running.process.send_signal(signal.SIGHUP)  # also during the start
        running.lines_until("reloaded")
        running.process.send_signal(signal.SIGHUP)
        running.lines_until("reloaded")
        running.process.send_signal(signal.SIGTERM)
        code, out, _ = running.end()
    assert (code, out) == (0, "stopping\nstopped\n")


@pytest.mark.parametrize("mode", ["fileless", "terminal"])
def test_a_hang_up_stops_a_broker_that_has_no_file_or_whose_terminal_was_closed(tmp_path, mode):
    with daemon(tmp_path, mode) as running:
        running.lines_until("ready")
        running.process.send_signal(signal.SIGHUP)
        code, out, _ = running.end()
    assert (code, out) == (0, "stopping\nstopped\n")


def test_compiled_code_of_unknown_sources_is_refused_before_it_runs(tmp_path):
    shutil.copytree(
        REPOSITORY / "broker",
        tmp_path / "broker",
        ignore=shutil.ignore_patterns("__pycache__", "*.so", MANIFEST),
    )
    (tmp_path / "broker/network/processor.abi3.so").write_bytes(b"no code at all")
    done = subprocess.run(
        [sys.executable, "-m", "broker", "standalone", "--data-dir", tmp_path / "data", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_FAILED
    assert "nothing says what they were compiled from" in done.stderr
    assert f"find {tmp_path}/broker -name '*.so' -delete" in done.stderr


def test_a_failed_start_says_why_and_fails(tmp_path):
    with daemon(tmp_path, "fail") as running:
        running.told("STATUS=Cannot start: the port is in use: stop the other")
        code, _, err = running.end()
    assert code == 1
    assert 'error startup_failed reason="the port is in use: stop the other"' in err
    assert "traceback" not in err


def test_a_crash_at_start_fails_with_its_traceback(tmp_path):
    with daemon(tmp_path, "crash") as running:
        code, _, err = running.end()
    assert code == 1
    assert 'startup_failed error="ZeroDivisionError: planned" traceback=' in err


def test_a_broker_that_ends_by_itself_is_a_failure(tmp_path):
    with daemon(tmp_path, "dies") as running:
        code, _, err = running.end()
    assert code == 1
    assert "broker_ended_by_itself" in err


def test_a_second_interrupt_ends_a_hanging_stop(tmp_path):
    with daemon(tmp_path, "hangs") as running:
        running.lines_until("ready")
        running.process.send_signal(signal.SIGINT)
        running.lines_until("stopping")
        running.process.send_signal(signal.SIGTERM)
        running.process.send_signal(signal.SIGINT)
        code, _, err = running.end()
    assert code == 130
    assert "stop_forced" in err


def test_every_way_through_life_ends_and_nothing_leaves_the_end():
    assert all(state is not State.STOPPED for state, _ in TRANSITIONS)
    for state in set(State) - {State.STOPPED}:
        reachable, seen = {state}, set()
        while reachable - seen:
            now = (reachable - seen).pop()
            seen.add(now)
            reachable |= {after for (before, _), after in TRANSITIONS.items() if before is now}
        assert State.STOPPED in seen
    assert all((state, Event.STOP) in TRANSITIONS for state in (State.STARTING, State.RUNNING))
