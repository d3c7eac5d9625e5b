"""How hosts are reached: ssh's arguments from an inventory, a bastion, and services that only ssh gets to."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sparkctl.connection import connect
from sparkctl.errors import Error, UsageError
from sparkctl.inventory import Host
from sparkctl.ssh import _config_file, login_from, resolve, ssh_arguments
from sparkctl.templates import evaluated
from sparkctl.tunnel import Tunnel, tunnel_to
from tests.support.one_answer import one_answer
from tools import cluster_status
from tools.http_access import get
from tools.inventory import Broker, Inventory

NO_FILES = ("-F", "/dev/null")


def test_ssh_gets_the_arguments_that_ansible_gives_it() -> None:
    variables = {
        "ansible_port": 2222,
        "ansible_user": "debian",
        "ansible_ssh_private_key_file": "/key",
        "ansible_ssh_common_args": "-o ProxyJump=debian@bastion:2222",
    }
    assert ssh_arguments(variables, {}) == (
        *("-o", "ProxyJump=debian@bastion:2222", "-o", "Port=2222"),
        *("-o", "User=debian", "-o", "IdentityFile=/key"),
    )


def test_ansibles_environment_counts_where_the_inventory_says_nothing() -> None:
    environment = {
        "ANSIBLE_SSH_COMMON_ARGS": "-F file",
        "ANSIBLE_REMOTE_PORT": "22",
        "ANSIBLE_REMOTE_USER": "me",
    }
    assert ssh_arguments({"ansible_port": 2222}, environment) == (
        "-F",
        "file",
        "-o",
        "Port=2222",
        "-o",
        "User=me",
    )
    assert ssh_arguments({}, {}) == ()


def test_ssh_itself_says_who_logs_in_where(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host kafka-a\n HostName 192.0.2.1\n User debian\n Port 2222\n UserKnownHostsFile /a /b\n"
    )
    login = resolve(("-F", str(config)), "kafka-a")
    assert (login.address, login.user, login.port) == ("192.0.2.1", "debian", 2222)
    assert (login.known_hosts, login.checks_host_key, login.proxy) == (("/a", "/b"), True, "")


def test_a_host_needs_no_arguments() -> None:
    """An inventory without user, port, key and options: ssh's own files say how it logs in."""
    assert ssh_arguments({"ansible_host": "192.0.2.1"}, {}) == ()
    assert resolve((), "192.0.2.1").address == "192.0.2.1"
    assert login_from("hostname h\nuser u\nport 22\nproxyjump b\n").proxy.startswith("ssh -W ")


@pytest.mark.parametrize(
    "arguments", [("-F", "/my/config"), ("-F/my/config",), ("-F", "/other", "-v", "-F", "/my/config")]
)
def test_a_bastion_is_reached_with_the_configuration_file_too(arguments: tuple[str, ...]) -> None:
    assert _config_file(arguments) == "/my/config"


def test_a_quotation_without_its_end_is_told_with_the_variable_and_without_its_text() -> None:
    with pytest.raises(UsageError, match=r"^ansible_ssh_args: no closing quotation$"):
        ssh_arguments({"ansible_ssh_args": "-o 'x"}, {})


def test_a_wrong_argument_is_told_in_sshs_words() -> None:
    with pytest.raises(Error, match=r"kafka-a: ssh refuses its arguments .*Bad configuration option"):
        resolve(("-o", "NoSuchOption=1"), "kafka-a")


@pytest.mark.parametrize(
    ("arguments", "proxy"),
    [
        (
            (*NO_FILES, "-o", "ProxyJump=debian@198.51.100.1:2222", "-p", "2223"),
            "ssh -F /dev/null -W '[kafka-a]:2223' -- 'ssh://debian@[198.51.100.1]:2222'",
        ),
        (
            ("-J", "one,two@[fd00::2]"),
            "ssh -J one -W '[kafka-a]:22' -- 'ssh://two@[fd00::2]'",
        ),
        ((*NO_FILES, "-o", "ProxyCommand=nc -X 5 %h %p", "-l", "me"), "nc -X 5 kafka-a 22"),
        ((*NO_FILES, "-o", "ProxyCommand=none"), ""),
    ],
)
def test_a_bastion_is_a_command_between(arguments: tuple[str, ...], proxy: str) -> None:
    assert resolve(arguments, "kafka-a").proxy == proxy


def test_fabric_goes_by_the_bastion_with_the_users_port() -> None:
    host = Host(
        "a", "192.0.2.1", "192.0.2.1", (*NO_FILES, "-J", "198.51.100.1", "-p", "2222", "-l", "debian")
    )
    connection = connect(host)
    assert (connection.user, connection.port) == ("debian", 2222)
    assert connection.gateway == "ssh -F /dev/null -W '[192.0.2.1]:2222' -- 'ssh://[198.51.100.1]'"


@pytest.mark.parametrize(
    ("arguments", "host", "service", "by_ssh"),
    [
        (NO_FILES, "192.0.2.1", "192.0.2.1", False),
        (NO_FILES, "192.0.2.1", "10.0.0.1", True),
        ((*NO_FILES, "-J", "198.51.100.1"), "192.0.2.1", "192.0.2.1", True),
    ],
)
def test_services_are_reached_by_ssh_behind_a_bastion_and_on_a_network_of_their_own(
    arguments: tuple[str, ...], host: str, service: str, by_ssh: bool
) -> None:
    assert (tunnel_to(arguments, host, service) is not None) is by_ssh


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `ssh` whose host is this one: it does what -W asks for, and notes its arguments."""
    program = tmp_path / "ssh"
    program.write_text(f"""#!/usr/bin/python3
import os, socket, sys, threading
open({str(tmp_path / "noted")!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
host, _, port = sys.argv[sys.argv.index("-W") + 1].rpartition(":")
try:
    there = socket.create_connection((host.strip("[]"), int(port)))
except OSError as error:
    sys.exit(f"channel 0: open failed: connect failed: {{error}}")
def up():
    while data := os.read(0, 65536):
        there.sendall(data)
    os._exit(0)
threading.Thread(target=up, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
""")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "noted"


def test_an_http_port_is_asked_through_ssh(service: int, ssh: Path) -> None:
    tunnel = Tunnel(("-o", "User=debian"), "192.0.2.1")
    assert get(f"http://127.0.0.1:{service}/", 5, tunnel) == (200, "here")
    assert ssh.read_text().startswith("-o User=debian ")
    assert ssh.read_text().endswith(f"-W 127.0.0.1:{service} -- 192.0.2.1\n")


def test_what_ssh_does_not_get_to_is_told_in_its_words(ssh: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(OSError, match=r"by ssh: channel 0: open failed: .*refused"):
        get(f"http://127.0.0.1:{port}/", 5, Tunnel((), "192.0.2.1"))
    assert ssh.exists()


def listing(**variables: object) -> dict[str, object]:
    return {"brokers": {"hosts": ["kafka-a"]}, "_meta": {"hostvars": {"kafka-a": variables}}}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x15\x03\x03\x00\x02\x02F", "does not speak HTTP: a port with TLS needs LANDLINE_HTTP_CA_FILE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "the connection ended before the answer did"),
        (b"", "closed connection without response"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "no Landline broker"),
        (b"HTTP/1.1 200 OK\r\n\r\n7", "no Landline broker"),
    ],
)
def test_a_brokers_port_with_a_strange_answer_is_told_in_its_row(answer: bytes, words: str) -> None:
    with one_answer(answer) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        found = cluster_status.ask(Broker("h", 1, host, 9092, int(port), 0))
    assert found["state"] == "no answer"
    assert words in found["error"]


def test_a_template_in_the_inventory_has_its_value() -> None:
    written = listing(
        broker_advertised_host="{{ inventory_hostname }}.{{ domain }}",
        domain="example.org",
        note="{{ nothing }}",
    )
    (broker,) = Inventory(evaluated(written)).brokers()
    assert broker.url == "http://kafka-a.example.org:8092"


def test_a_template_that_only_a_role_can_evaluate_stays() -> None:
    found = evaluated(listing(broker_rack="{{ a_default_of_a_role }}", broker_kafka_port="{{ 9000 + 92 }}"))
    assert found["_meta"]["hostvars"]["kafka-a"] == {
        "broker_rack": "{{ a_default_of_a_role }}",
        "broker_kafka_port": 9092,
    }


def test_the_address_of_service_is_not_that_of_management() -> None:
    inventory = Inventory(listing(ansible_host="192.0.2.1", landline_address="fd00::1"))
    (broker,) = inventory.brokers()
    assert (inventory.address("kafka-a"), broker.bootstrap) == ("192.0.2.1", "[fd00::1]:9092")
    assert broker.tunnel is not None
