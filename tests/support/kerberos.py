"""A Kerberos realm of a test's own: a KDC on loopback with its database and its krb5.conf in a directory.

Debian's packages krb5-kdc, krb5-admin-server and python3-gssapi are needed; `make test` installs them.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pytest

from broker.config.kerberos import MODULE, KerberosLogin
from broker.protocol.api_keys import ApiKey
from broker.sasl.exchange import Tokens
from rig.ports import free_port
from rig.processes import ManagedProcess
from rig.raw_client import RawClient

if TYPE_CHECKING:
    from broker.server.kerberos import KerberosClient

HOST = "localhost"
SERVICE = f"kafka/{HOST}"
JAAS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
PACKAGES = "krb5-kdc krb5-admin-server python3-gssapi"
# A process keeps its tickets in memory, by the name of the principal: no two realms have the same.
_numbers = itertools.count(1)
_DEBIANS = Path("/usr/lib/python3/dist-packages")

_KRB5_CONF = """\
[libdefaults]
 default_realm = {name}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {name} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_KDC_CONF = """\
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {name} = {{
  database_name = {root}/principal
  key_stash_file = {root}/stash
  acl_file = {root}/acl
 }}
"""


class Realm:
    """A realm with one KDC. ``keys`` has the files of its principals' keys. As a context it runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = f"R{next(_numbers)}.EXAMPLE.COM"
        self.keys: dict[str, Path] = {}
        self._port = free_port()
        self.krb5_conf = root / "krb5.conf"
        self.env = {"KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(root / "kdc.conf")}
        root.mkdir(parents=True, exist_ok=True)
        for path in (self.krb5_conf, root / "kdc.conf"):
            content = _KRB5_CONF if path == self.krb5_conf else _KDC_CONF
            path.write_text(content.format(name=self.name, port=self._port, root=root))
        self._run("kdb5_util", "create", "-s", "-P", "the database's own password")
        self._kdc = ManagedProcess("KDC", lambda: [_tool("krb5kdc"), "-n"], root / "kdc.log", self.env)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the KDC."""
        self._kdc.start()
        self._kdc.wait_ready(self._is_ready, 30)

    def stop(self) -> None:
        """Ends the KDC; its database stays."""
        self._kdc.stop()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """The KDC takes connections and answers nothing."""
        self._kdc.freeze()
        try:
            yield
        finally:
            self._kdc.thaw()

    def add(self, *principals: str) -> None:
        """Makes principals, each with its key in a file."""
        for principal in principals:
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self.keys[principal] = self.root / (principal.replace("/", "-") + ".keytab")
            self.renew(principal)

    def renew(self, principal: str) -> None:
        """Gives a principal a new key, which its file gets in addition."""
        self._run("kadmin.local", "-q", f"ktadd -k {self.keys[principal]} {principal}")

    def jaas(self, principal: str) -> str:
        """The JAAS entry of a broker or a Java client that is this principal."""
        return login_module(f"{principal}@{self.name}", self.keys[principal])

    def listeners(self, port: int, sasl_port: int) -> dict[str, object]:
        """The settings of a broker with a PLAINTEXT listener for the rig, and a GSSAPI listener for brokers and
        clients. Java's clients look up the name of an address, so the GSSAPI listener has a name.
        """
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://{HOST}:{sasl_port}",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            JAAS: self.jaas(SERVICE),
        }

    def tokens(self, principal: str, host: str = HOST) -> Tokens:
        """The tokens of a client in this process."""
        return self.client(principal).tokens(host)

    def client(self, principal: str, now_s: Callable[[], float] = time.monotonic) -> KerberosClient:
        """A client in this process; imported late, when the library is there."""
        from broker.server.kerberos import KerberosClient

        login = KerberosLogin(f"{principal}@{self.name}", str(self.keys[principal]), "kafka")
        return KerberosClient(login, now_s)

    def only_token(self, principal: str) -> bytes:
        """The only token of a client that asks for no proof of the server, as Java's do."""
        import gssapi

        store = {"client_keytab": str(self.keys[principal]), "ccache": f"MEMORY:all-{self.name}"}
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"kafka@{HOST}", gssapi.NameType.hostbased_service),
            creds=gssapi.Credentials(usage="initiate", store=store),
            flags=gssapi.RequirementFlag.integrity,
            usage="initiate",
        )
        token = context.step()
        assert context.complete
        return bytes(token)

    def join(self, patch: pytest.MonkeyPatch) -> None:
        """Makes this process, and those that it starts, members of the realm, with the GSSAPI library."""
        patch.setenv("KRB5_CONFIG", str(self.krb5_conf))
        patch.setenv("KRB5RCACHENAME", f"file2:{self.root}/replays")
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={self.krb5_conf}")
        libraries = self.root / "libraries"
        libraries.mkdir()
        _use_library(libraries, patch)

    def _is_ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._port), 1):
            return True

    def _run(self, program: str, *arguments: str) -> None:
        argv = [_tool(program), *arguments]
        done = subprocess.run(
            argv, env={**os.environ, **self.env}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def repeated(token: bytes, *connections: RawClient) -> list[Any]:
    """What the connections are answered, one after another, that begin with the same token."""
    answers = []
    for raw in connections:
        raw.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
        answers.append(raw.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}))
    return answers


def login_module(principal: str, keytab: Path, options: str = "") -> str:
    """A JAAS entry for a broker or a Java client."""
    return (
        f'{MODULE} required useKeyTab=true storeKey=true {options} keyTab="{keytab}" principal="{principal}";'
    )


def _use_library(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Makes the GSSAPI library importable, in this process and in those that it starts: Debian's, without the
    other packages there, if this environment has none.
    """
    if Path(sysconfig.get_path("purelib"), "gssapi").exists():
        return
    for name in ("gssapi", "decorator.py"):
        original = _DEBIANS / name
        assert original.exists(), f"{original} is missing: apt-get install {PACKAGES}"
        (root / name).symlink_to(original)
    patch.syspath_prepend(root)
    patch.setenv("PYTHONPATH", str(root))


def _tool(name: str) -> str:
    path = Path("/usr/sbin", name)
    assert path.exists(), f"{path} is missing: apt-get install {PACKAGES}"
    return str(path)
