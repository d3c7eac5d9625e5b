"""One JVM with Kafka's classes, for tests: its Java clients, and its command-line tools without a JVM for each.

py4j, a part of pyspark, carries the calls. A tool runs by its ``main``, as its script runs it. What ends the
JVM there, ``Exit.exit``, raises here and tells the exit code.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j import java_gateway
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError, get_return_value

from rig.jvm import SHORT_LIVED_JVM
from rig.kafka_dist import KAFKA_VERSION, classpath
from tests.support.documented_plan import KAFKAS

OAUTH_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
STRING = "java.lang.String"
_EXITED = re.compile(r"exited with (-?\d+)")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a tool ended, what it printed, and what it said on stderr, its log included."""

    code: int
    printed: str
    said: str


class KafkaJvm:
    """A running JVM; ``java`` names its classes by their packages."""

    def __init__(self, gateway: JavaGateway, process: subprocess.Popen[bytes]) -> None:
        self.java = gateway.jvm
        self._gateway = gateway
        self._process = process
        io = self.java.java.io
        self._printed, self._said = io.ByteArrayOutputStream(), io.ByteArrayOutputStream()
        # Scala's Console and log4j keep the streams that they find first, so these stay.
        self.java.System.setOut(io.PrintStream(self._printed, True))
        self.java.System.setErr(io.PrintStream(self._said, True))
        self._exits_raise()

    def run(self, tool: str, *arguments: str, text: str = "") -> Ran:
        """Runs one of ``KAFKAS``, or another class, to its end, with ``text`` as its input."""
        self._printed.reset()
        self._said.reset()
        self.java.System.setIn(self.java.java.io.ByteArrayInputStream(text.encode()))
        thrown = ""
        try:
            self._class(KAFKAS.get(tool, tool)).main(self.strings(arguments))
        except Py4JJavaError as error:
            thrown = str(error)
        said = self._said.toString() + thrown
        # A tool may catch what ``Exit`` raises, print it and exit once more: the first one is what counts.
        exited = _EXITED.search(said)
        code = int(exited[1]) if exited else int(bool(thrown))
        return Ran(code, self._printed.toString(), said)

    def kill(self) -> None:
        """Ends the JVM by SIGKILL; only what carries the calls is closed before."""
        self._gateway.shutdown()
        self._process.kill()
        self._process.wait(30)

    def strings(self, values: Sequence[str]) -> Any:
        """A ``String[]``."""
        array = self._gateway.new_array(self.java.String, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array

    def properties(self, settings: Mapping[str, object]) -> Any:
        """A ``Properties`` with these strings."""
        made = self.java.java.util.Properties()
        for key, value in settings.items():
            made.setProperty(key, str(value))
        return made

    def _class(self, name: str) -> Any:
        found = self.java
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def _exits_raise(self) -> None:
        """Makes Kafka's ``Exit`` throw an Error that has the code, by method handles: no class is compiled."""
        lang = self.java.java.lang
        handles, types = lang.invoke.MethodHandles, lang.invoke.MethodType
        error, string, void = (
            lang.Class.forName("java.lang.Error"),
            lang.Class.forName(STRING),
            lang.Void.TYPE,
        )
        look_up = handles.publicLookup()
        as_text = look_up.findStatic(string, "valueOf", types.methodType(string, lang.Integer.TYPE))
        append = look_up.findVirtual(string, "concat", types.methodType(string, string))
        as_error = look_up.findConstructor(error, types.methodType(void, string))
        steps = (append.bindTo("exited with "), as_error, handles.throwException(void, error))
        for step in steps:
            as_text = handles.filterReturnValue(as_text, step)
        procedure = lang.Class.forName("org.apache.kafka.common.utils.Exit$Procedure")
        with_message = handles.dropArguments(as_text, 1, [string])
        self.java.org.apache.kafka.common.utils.Exit.setExitProcedure(
            lang.invoke.MethodHandleProxies.asInterfaceInstance(procedure, with_message)
        )


@contextmanager
def kafka_jvm(
    log: Path, version: str = KAFKA_VERSION, tokens_from: str = "", more: Sequence[Path] = ()
) -> Iterator[KafkaJvm]:
    """Starts a JVM, with ``more`` jars than Kafka's; its log goes to the file. It may fetch tokens from the URL
    ``tokens_from`` only.
    """
    flags = ["-Xmx160m", *SHORT_LIVED_JVM, "-Dlandline.log.level=WARN", "-Dlandline.log.target=System.err"]
    with log.open("a") as out:
        port, process = launch_gateway(
            classpath=":".join([classpath(version), *map(str, more)]),
            javaopts=[*flags, f"-D{OAUTH_URLS}={tokens_from}"],
            die_on_exit=True,
            redirect_stderr=out,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        # Where Spark ran in this process before, it still converts the errors of all gateways, by its own JVM.
        converts = java_gateway.get_return_value
        java_gateway.get_return_value = get_return_value
        try:
            yield KafkaJvm(gateway, process)
        finally:
            java_gateway.get_return_value = converts
            if process.poll() is None:
                gateway.shutdown()
            process.stdin.close()
            process.wait(30)
