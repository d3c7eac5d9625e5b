"""What the deployment's modules decide: whether a unit must restart, when its turn is, whether it serves."""

import json
import os
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.deploy_code import load

listening = load("plugins/module_utils/listening.py")
zookeeper_words = load("plugins/module_utils/zookeeper_words.py")
unit_state = load("plugins/module_utils/unit_state.py")
health = load("plugins/modules/broker_health.py")
instances = load("plugins/modules/broker_instances_info.py")
broker_status = load("plugins/module_utils/broker_status.py")
reload = load("plugins/modules/broker_reload.py")
attended = load("plugins/modules/attended_command.py")
zookeeper_health = load("plugins/modules/zookeeper_health.py")


def status(broker_id=1, state="RunningAsBroker", is_controller=False, loading=None):
    return {"broker_id": broker_id, "state": state, "is_controller": is_controller, "loading": loading}


@contextmanager
def broker(answer, ready=200):
    """A broker's HTTP endpoint with these answers; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            code, body = (200, json.dumps(answer)) if self.path == "/status" else (ready, "replica 7 lags")
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("active", "running", "state"),
    [
        ("active", "want", "current"),
        ("activating", "want", "current"),
        ("active", "other", "changed"),
        ("active", "", "changed"),
        ("inactive", None, "stopped"),
        ("failed", None, "stopped"),
        ("activating", None, "stopped"),
    ],
)
def test_a_unit_is_what_its_process_was_started_with(active, running, state):
    assert unit_state.unit_state(active, running, "want") == state


def test_the_fingerprint_is_read_from_the_process_itself():
    assert unit_state.fingerprint_in(b"A=1\0LANDLINE_FINGERPRINT=ab12\0B=2\0") == "ab12"
    assert unit_state.fingerprint_in(b"A=1\0X_LANDLINE_FINGERPRINT=ab12\0") == ""


def test_a_process_that_is_gone_has_no_fingerprint():
    assert unit_state.fingerprint_of(0) is None
    assert unit_state.fingerprint_of(2**22 + 1) is None


def test_a_unit_that_somebody_restarts_is_judged_by_what_it_starts_with(monkeypatch):
    monkeypatch.setattr(unit_state, "PAUSE_S", 0)
    monkeypatch.setattr(unit_state, "fingerprint_of", {0: None, 7: "old", 8: "old"}.get)
    seen = [
        {"ActiveState": "deactivating", "MainPID": "7", "Job": "40"},
        {"ActiveState": "inactive", "MainPID": "0", "Job": "40"},
        {"ActiveState": "activating", "MainPID": "0", "Job": "41"},
        {"ActiveState": "activating", "MainPID": "8", "Job": "41"},
    ]
    assert unit_state.state_of("u", "new", lambda unit: seen.pop(0)) == "changed"
    assert seen == []


@pytest.mark.parametrize(
    "shown",
    [
        {"ActiveState": "inactive", "MainPID": "0", "Job": "0"},
        {"ActiveState": "failed", "MainPID": "0", "Job": "0"},
        {"ActiveState": "activating", "MainPID": "0", "Job": "0"},
    ],
)
def test_a_unit_that_is_down_or_crash_loops_is_stopped_at_once(shown):
    seen = [shown]
    assert unit_state.state_of("u", "new", lambda unit: seen.pop()) == "stopped"


def wanted(url, broker_id=1):
    return {"id": broker_id, "url": url, "unit": "landline-broker@1.service"}


def test_a_broker_that_is_not_ready_says_why():
    with broker(status(), ready=503) as url:
        assert health.look(wanted(url), 2) == (f"{url}/readyz: replica 7 lags", 0)
    with broker(status()) as url:
        assert health.look(wanted(url), 2) == (None, 0)
    assert health.look(wanted(url), 2)[0].startswith(f"{url}/readyz: ")


def test_a_recovery_tells_how_much_it_has_done():
    loading = {"logs": 12, "logs_total": 900, "segments": 340, "segments_total": 512}
    with broker(status(state="RecoveringFromUncleanShutdown", loading=loading), ready=503) as url:
        assert health.look(wanted(url), 2)[1] == 352


def test_the_answer_must_come_from_the_broker_that_the_inventory_has_there():
    with broker(status(broker_id=1)) as url:
        wrong, _ = health.look(wanted(url, broker_id=3), 2)
    assert wrong == f"broker 1 answers at {url}, where broker 3 should be"


def test_the_controller_is_known_by_its_own_word_and_who_serves_nobody_is_broken():
    with broker(status(is_controller=True)) as url:
        assert instances.seen(wanted(url), 2).place == "controller"
    assert instances.seen(wanted(url), 2).place == "broken"
    with broker(status()) as url:
        assert instances.seen(wanted(url), 2).place == "others"
    with broker(status(state="Starting")) as url:
        assert instances.seen(wanted(url), 2).place == "broken"


def test_a_broker_reloads_a_file_that_is_to_change_or_that_it_has_not_taken_up(tmp_path):
    path, properties = tmp_path / "broker-1.properties", {"a": "1", "b": "2"}
    config = str(path)
    path.write_text("# by hand\n# or not\na=1\nb=2\n")
    loaded = {"config_file": {"version": broker_status.version_of(config)}}
    assert not instances.must_reload(config, properties, loaded)
    assert instances.must_reload(config, {**properties, "b": "3"}, loaded)
    assert instances.must_reload(config, properties, {"config_file": {"version": "of the one before"}})
    for silent in (None, {}, {"config_file": None}):  # it does not say what it goes by
        assert not instances.must_reload(config, properties, silent)
    path.unlink()
    assert instances.must_reload(config, properties, loaded)


def test_a_value_of_several_lines_is_as_the_template_writes_it(tmp_path):
    """A block of YAML, which ends with a line break: without this, each deploy would reload."""
    path, value = tmp_path / "broker-1.properties", "A required \\\n  user=x;\n"
    path.write_text(f"# managed\na={value}\nb=1\n")
    assert broker_status.is_written(str(path), {"a": value, "b": "1"})
    assert not broker_status.is_written(str(path), {"a": "A required", "b": "1"})


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ({**status(), "config_file": {"version": "of the one before"}}, "reloading"),
        ({**status(), "config_file": None}, "reloading"),  # it starts
        (status(), "outdated"),
    ],
)
def test_only_a_broker_that_knows_reloads_gets_one_and_others_their_turn(tmp_path, monkeypatch, said, how):
    """SIGHUP stops brokers of releases up to 0.2.0, to which a cluster may go back."""
    monkeypatch.setattr(instances, "state_of", lambda *_: "current")
    path = tmp_path / "broker-1.properties"
    path.write_text("log.retention.hours=1\n")
    properties = {"log.retention.hours": "2"}
    about = {"id": 1, "unit": "u", "fingerprint": "f", "config": str(path)}
    nothing = {"ports": [], "mounts": [], "ca_file": None, "token_file": None}
    places = {"config_dir": tmp_path, "unit_dir": tmp_path, "before_dir": tmp_path / "before", "bar": "x"}
    params = {**nothing, **places, "release_done": path, "properties": json.dumps({"u": properties})}
    with broker(said) as url:
        found = instances.look({**params, "brokers": [{**about, "url": url}], "timeout": 2})
    assert {each for each in ("reloading", "outdated") if found[each]} == {how}


def test_a_broker_is_unjudged_while_what_it_had_is_kept_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(instances, "state_of", lambda *_: "stopped")
    before, done = tmp_path / "before", tmp_path / "none"
    nothing = {"ports": [], "mounts": [], "ca_file": None, "token_file": None}
    params = {
        **nothing,
        "config_dir": tmp_path,
        "unit_dir": tmp_path,
        "before_dir": before,
        "bar": "decommission.conf",
        "release_done": done,
        "properties": "{}",
    }
    brokers = [{"id": n, "unit": f"u{n}", "url": f"http://h:{n}", "fingerprint": "f"} for n in (1, 2)]

    def unjudged():
        return instances.look({**params, "brokers": brokers, "timeout": 2})["unjudged"]

    assert unjudged() == []
    before.mkdir()
    (before / "broker-2.properties").touch()
    assert unjudged() == []
    program = tmp_path / "releases/1/venv/bin/landline"
    (before / "u2").write_text(f"[Service]\nExecStart={program} start /etc/landline/broker-2.properties\n")
    assert unjudged() == []  # there is nothing to go back to
    program.parent.mkdir(parents=True)
    program.touch()
    assert unjudged() == ["http://h:2"]


@pytest.mark.parametrize(
    ("file", "done", "words"),
    [
        ({"version": "new", "refused": None, "needs_restart": []}, True, None),
        ({"version": "old", "refused": None, "needs_restart": []}, False, "does not say"),
        ({"version": "old", "refused": {"version": "new", "reason": "x: bad"}}, True, "as before: x: bad"),
        ({"version": "new", "refused": {"version": "older", "reason": "x"}}, True, None),
        ({"version": "new", "needs_restart": ["broker.rack"]}, True, "restart for broker.rack"),
        (None, False, "does not say"),
    ],
)
def test_a_reload_is_over_when_the_broker_says_so(file, done, words):
    is_done, wrong = reload.outcome({"config_file": file}, "new")
    assert is_done is done
    assert words is None if wrong is None else words in wrong


@pytest.mark.parametrize(
    ("brokers", "host"),
    [
        ([], "others"),
        (["others", "others"], "others"),
        (["others", "controller"], "controller"),
        (["controller", "broken"], "broken"),
    ],
)
def test_a_hosts_turn_is_that_of_its_brokers(brokers, host):
    assert instances.place_of_host(brokers) == host


def test_brokers_that_nobody_wants_are_found_by_their_files():
    files = ["broker-1.properties", "broker-12.properties"]
    assert instances.unknown_brokers(files, [1, 2]) == ["broker-12.properties"]


def test_zookeepers_mode_is_read_from_srvr():
    assert zookeeper_health.mode_in("Zxid: 0x5\nMode: leader\nNode count: 5\n") == "leader"
    assert zookeeper_health.mode_in("This ZooKeeper instance is not currently serving requests\n") == ""


@pytest.fixture
def ends():
    """Where a module's answer is read, and where it is written."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb") as writer:
        yield reader, writer


def test_a_command_reads_and_answers_while_somebody_waits_for_it(ends):
    done = attended.attend(["sh", "-c", "cat; echo why >&2; exit 75"], "a line\n", ends[1].fileno())
    assert done == {"rc": 75, "stdout": "a line", "stderr": "why"}


def test_a_command_that_nobody_waits_for_any_more_is_interrupted(ends):
    reader, writer = ends
    reader.close()
    done = attended.attend(["sleep", "1000"], "", writer.fileno())
    assert done["rc"] == -signal.SIGINT


@contextmanager
def zookeeper_saying(answer):
    """A port that answers this to everything; with None it is connected to by the kernel alone."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(64)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    if answer is not None:
        thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        if answer is not None:
            thread.join()
        listener.close()


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (b"Zookeeper version: 3.8.0\nMode: follower\n", "serves"),
        (b"This ZooKeeper instance is not currently serving requests\n", "alone"),
        (b"srvr is not executed because it is not in the whitelist.\n", "unclear"),
        (b"", "unclear"),
        (None, "silent"),
    ],
)
def test_a_zookeeper_server_is_to_its_clients_what_it_answers(answer, state):
    with zookeeper_saying(answer) as server:
        host, port = zookeeper_words.servers_in(server)[server]
        assert zookeeper_words.ask_state(host, port, timeout_s=0.5 if answer is None else 30) == state
    assert zookeeper_words.ask_state(host, port) == "silent"


def test_the_servers_of_a_connect_string_are_found_with_and_without_ports():
    assert zookeeper_words.servers_in("a:2182,b, [::1]:2183,[fe80::2]/chroot") == {
        "a:2182": ("a", 2182),
        "b": ("b", 2181),
        "[::1]:2183": ("::1", 2183),
        "[fe80::2]": ("fe80::2", 2181),
    }


def test_only_an_address_of_the_host_can_be_listened_on():
    assert listening.why_not_own("") is None
    assert listening.why_not_own("127.0.0.1") is None
    words = listening.why_not_own("192.0.2.1")  # for documentation: nobody's
    assert words.startswith("broker_http_host=192.0.2.1 is no address of this host (")
    assert 'or to "" for all interfaces' in words
    assert "is no address of this host" in listening.why_not_own("a" * 70)  # is no name either


def test_a_release_notes_the_archive_that_it_was_installed_from(tmp_path):
    done = tmp_path / ".installed"
    assert instances.installed_from(done) == {}
    done.write_text("0.3.0\n")
    assert instances.installed_from(done) == {}, "by a playbook that kept no note of it"
    done.write_text("0.4.0\ncp313-x86_64 c0ffee\n")
    assert instances.installed_from(done) == {"platform": "cp313-x86_64", "sha256": "c0ffee"}
