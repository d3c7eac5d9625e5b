"""Three ZooKeeper servers on loopback, from Debian's package, with their data in a temporary directory."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from compare.storm.sessions import Address, StormError
from lab.waiting import wait_until

SERVERS = 3
HOST = "127.0.0.1"
JARS = (Path("/usr/share/java/zookeeper.jar"), Path("/usr/share/java/slf4j-simple.jar"))
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
HEAP = "512m"
START_TIMEOUT_S = 60.0


@contextmanager
def ensemble() -> Iterator[list[Address]]:
    """The client addresses of a serving ensemble, which is removed with its data at the end.
    Raises StormError.
    """
    for jar in JARS:
        if not jar.exists():
            raise StormError(
                f"{jar} is not there: apt-get install zookeeper libslf4j-java, or give --connect"
            )
    ports = free_ports(3 * SERVERS)
    clients, peers, elections = ports[:SERVERS], ports[SERVERS : 2 * SERVERS], ports[2 * SERVERS :]
    with tempfile.TemporaryDirectory(prefix="landline-storm-") as directory, ExitStack() as stack:
        for number in range(SERVERS):
            home = Path(directory) / str(number + 1)
            home.mkdir()
            (home / "myid").write_text(f"{number + 1}\n", encoding="ascii")
            stack.enter_context(_running(_config(home, clients[number], peers, elections), home))
        addresses = [(HOST, port) for port in clients]
        if not wait_until(lambda: all(_serves(address) for address in addresses), START_TIMEOUT_S, 0.2):
            raise StormError(f"ZooKeeper does not serve after {START_TIMEOUT_S:g} s")
        yield addresses


def _config(home: Path, client_port: int, peers: list[int], elections: list[int]) -> Path:
    """The same settings as in roles/zookeeper, on loopback: writes are synced."""
    settings: dict[str, object] = {
        "tickTime": 2000,
        "initLimit": 10,
        "syncLimit": 5,
        "dataDir": home,
        "clientPort": client_port,
        "clientPortAddress": HOST,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
    }
    for number, (peer, election) in enumerate(zip(peers, elections, strict=True), 1):
        settings[f"server.{number}"] = f"{HOST}:{peer}:{election}"
    path = home / "zoo.cfg"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    return path


@contextmanager
def _running(config: Path, home: Path) -> Iterator[None]:
    log_flag = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = ["java", f"-Xmx{HEAP}", log_flag, "-cp", ":".join(map(str, JARS)), MAIN, str(config)]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _serves(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Free loopback ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
