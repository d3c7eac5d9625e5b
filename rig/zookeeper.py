"""Real ZooKeeper servers for tests, single or as an ensemble, on loopback, with their data in the
caller's directory.

Runs Debian's ``zookeeper`` jar if it is installed, else the ZooKeeper classes among Kafka's jars.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rig import kafka_dist
from rig.jvm import SHORT_LIVED_JVM
from rig.ports import free_port
from rig.processes import ManagedProcess
from rig.wait import wait_until

DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
DEBIAN_LOG_JAR = Path("/usr/share/java/slf4j-simple.jar")
# TLS needs them, and the jar's manifest does not name them.
DEBIAN_TLS_JARS = tuple(Path("/usr/share/java", f"netty-{name}.jar") for name in ("codec", "resolver"))
DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM_FLAGS = ("-Xmx128m", *SHORT_LIVED_JVM)
START_TIMEOUT_S = 60.0

_chroot_numbers = itertools.count(1)


class ZooKeeperServer:
    """One ZooKeeper server. It keeps its data and its port across ``stop``, ``kill`` and ``start``.

    ``tick_ms`` is ZooKeeper's tickTime: session timeouts are 2 to 20 ticks, whatever a client requests.
    ``quorum`` has the settings of an ensemble's member; such a server waits for its disk. ``tls`` has a key
    store and a trust store, PEM files: with it the server has a second port that speaks TLS, and accepts only
    clients with a certificate there. ``users`` are those who may log in by SASL DIGEST-MD5, with their
    passwords, which the server reads from a JAAS file.
    """

    def __init__(
        self,
        data_dir: Path,
        tick_ms: int = 500,
        port: int | None = None,
        quorum: Mapping[str, object] | None = None,
        tls: tuple[Path, Path] | None = None,
        *,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.host = "127.0.0.1"
        self.secure_port = free_port() if tls else None
        self._tls = tls
        self._users = users or {}
        self._jaas = data_dir / "jaas.conf"
        self.port = port or free_port()
        self.data_dir = data_dir
        self._tick_ms = tick_ms
        self._quorum = quorum
        self._config = data_dir / "zoo.cfg"
        self._process = ManagedProcess(f"ZooKeeper on {self.port}", self._command, data_dir / "zookeeper.log")

    @property
    def connect_string(self) -> str:
        """``host:port``, without a chroot."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> ManagedProcess:
        """The server's process, to freeze or measure it."""
        return self._process

    def chroot(self, name: str = "t") -> str:
        """Returns a connect string with a chroot that is unique in this run (it is not created)."""
        return f"{self.connect_string}/{name}-{os.getpid()}-{next(_chroot_numbers)}"

    def start(self) -> Self:
        """Starts the server and waits until it serves."""
        self.start_nowait()
        self.wait_ready()
        return self

    def start_nowait(self) -> None:
        """Starts the server; a member of an ensemble serves only with a majority."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._config.write_text(self._properties())
        if self._users:
            options = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
            self._jaas.write_text(f"Server {{ {DIGEST_LOGIN} required {options}; }};\n")
        self._process.start()

    def wait_ready(self) -> None:
        """Waits until the server serves."""
        self._process.wait_ready(self.is_ready, START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends the server by SIGTERM."""
        self._process.stop()

    def kill(self) -> None:
        """Ends the server by SIGKILL."""
        self._process.kill()

    def is_ready(self) -> bool:
        """Whether the server answers and serves (``srvr`` includes its mode only then)."""
        return "Mode:" in self.four_letter_word("srvr")

    def four_letter_word(self, word: str) -> str:
        """Sends one of ZooKeeper's four-letter commands and returns the answer, or "" when there is none."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2.0) as connection:
                connection.sendall(word.encode())
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def _command(self) -> list[str]:
        flags = (f"-Djava.security.auth.login.config={self._jaas}",) if self._users else ()
        if DEBIAN_JAR.exists():
            classpath = ":".join(map(str, (DEBIAN_JAR, DEBIAN_LOG_JAR, *DEBIAN_TLS_JARS)))
            log_flag = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
            return ["java", *JVM_FLAGS, *flags, log_flag, "-cp", classpath, MAIN_CLASS, str(self._config)]
        return kafka_dist.java_command(MAIN_CLASS, str(self._config), jvm=(*JVM_FLAGS, *flags))

    def _properties(self) -> str:
        settings = {
            "dataDir": self.data_dir / "data",
            "clientPortAddress": self.host,
            "clientPort": self.port,
            "tickTime": self._tick_ms,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxSessionTimeout": 60_000,
            # A test's data is thrown away, and on a shared machine every write would wait for the fsyncs
            # of others.
            "forceSync": "no",
            "preAllocSize": 1024,
        }
        if self._tls is not None:
            settings |= {
                "secureClientPort": self.secure_port,
                "secureClientPortAddress": self.host,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": self._tls[0],
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": self._tls[1],
                "ssl.trustStore.type": "PEM",
                "ssl.protocol": "TLS",
                "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
                # Certificates of clients have no host names.
                "ssl.hostnameVerification": "false",
            }
        if self._users:
            settings["authProvider.sasl"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        if self._quorum is not None:
            settings |= {"forceSync": "yes", **self._quorum}
        return "".join(f"{key}={value}\n" for key, value in settings.items())


class ZooKeeperEnsemble:
    """Servers that vote. Each has its data below ``directory``, or in its entry of ``disks``. All serve
    once entered.
    """

    def __init__(self, directory: Path, size: int = 3, disks: Mapping[int, Path] | None = None) -> None:
        self._disks = disks or {}
        addresses = {
            f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in range(1, size + 1)
        }
        quorum: dict[str, object] = {"initLimit": 20, "syncLimit": 4, **addresses}
        self.servers = {
            number: ZooKeeperServer(
                directory / f"zookeeper-{number}",
                quorum={**quorum, **({"dataDir": self._disks[number]} if number in self._disks else {})},
            )
            for number in range(1, size + 1)
        }

    @property
    def connect_string(self) -> str:
        """All servers, without a chroot."""
        return ",".join(server.connect_string for server in self.servers.values())

    def leader(self) -> int:
        """The number of the leading server; raises TimeoutError when there is none for half a minute."""
        return wait_until(self._leader, what="the ensemble has a leader")

    def _leader(self) -> int:
        modes = {number: server.four_letter_word("srvr") for number, server in self.servers.items()}
        return next((number for number, mode in modes.items() if "Mode: leader" in mode), 0)

    def __enter__(self) -> Self:
        for number, server in self.servers.items():
            data = self._disks.get(number, server.data_dir / "data")
            data.mkdir(parents=True, exist_ok=True)
            (data / "myid").write_text(f"{number}\n")
            server.start_nowait()
        for server in self.servers.values():
            server.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers.values():
            server.kill()
