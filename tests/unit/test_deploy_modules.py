"""What the deployment's modules decide: whether a unit must restart, whether the cluster bears it."""

import importlib.util
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ansible.module_utils
import pytest

ROOT = Path(__file__).parents[2]

# Where Ansible itself finds the modules' shared code.
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"deploy_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


unit_state = load(ROOT / "module_utils" / "unit_state.py")
health = load(ROOT / "library" / "broker_health.py")
instances = load(ROOT / "library" / "broker_instances_info.py")
zookeeper_health = load(ROOT / "library" / "zookeeper_health.py")


def status(broker_id=1, under_replicated=0, at_min_isr=0, under_min_isr=0, is_controller=False):
    return {
        "broker_id": broker_id,
        "under_replicated_partitions": under_replicated,
        "at_min_isr_partitions": at_min_isr,
        "under_min_isr_partitions": under_min_isr,
        "is_controller": is_controller,
    }


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


def test_a_broker_may_stop_when_every_isr_is_complete_whatever_min_isr_says():
    """Topics with one replica are always at min.isr: they must not block a roll for ever."""
    assert health.why_not_may_stop({"a": status(at_min_isr=5, under_min_isr=2)}) == []


def test_a_broker_may_not_stop_while_an_incomplete_isr_is_at_its_minimum():
    statuses = {"a": status(1, under_replicated=3), "b": status(2, at_min_isr=1)}
    [reason] = health.why_not_may_stop(statuses)
    assert reason.startswith("broker 2 ")


def test_a_broker_may_stop_while_another_is_down_if_every_isr_has_one_to_spare():
    assert health.why_not_may_stop({"a": status(under_replicated=3)}) == []


def test_after_a_restart_no_isr_may_be_incomplete():
    statuses = {"a": status(1), "b": status(2, under_replicated=4)}
    assert health.why_not_in_sync(statuses) == ["broker 2 leads 4 under-replicated partitions"]


def test_a_broker_that_does_not_answer_blocks_a_roll():
    with broker(status()) as gone:
        pass
    with broker(status()) as answering:
        found, _ = health.problems("may_stop", [answering, gone], 2)
    assert len(found) == 1
    assert found[0].startswith(f"{gone}/status: ")


def test_a_broker_that_is_not_ready_says_why():
    with broker(status(), ready=503) as url:
        assert health.problems("ready", [url], 2) == ([f"{url}/readyz: replica 7 lags"], {})
    with broker(status()) as url:
        assert health.problems("ready", [url], 2) == ([], {})


def test_the_controller_is_known_by_its_own_word():
    with broker(status(is_controller=True)) as url:
        assert instances.is_controller(url, 2)
    assert not instances.is_controller(url, 2)


def test_brokers_that_nobody_wants_are_found_by_their_files():
    files = ["broker-1.properties", "broker-12.properties"]
    assert instances.unknown_brokers(files, [1, 2]) == ["broker-12.properties"]


def test_zookeepers_mode_is_read_from_srvr():
    assert zookeeper_health.mode_in("Zxid: 0x5\nMode: leader\nNode count: 5\n") == "leader"
    assert zookeeper_health.mode_in("This ZooKeeper instance is not currently serving requests\n") == ""
