"""Apache Kafka 3.9.1's own jars: the peer of the tests and the benchmark, and Kafka's command-line tools.

The jars are obtained once by ``mvn`` (whatever repository this machine's Maven is set up for) into a cache that
all checkouts share: ``$LANDLINE_CACHE`` or /var/cache/landline, below it ``kafka/3.9.1``. The cache is built
aside and renamed into place under a lock, so that parallel test runs and interrupted downloads do no harm.
Starting brokers is left to ``kafka_broker``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

KAFKA_VERSION = "3.9.1"
SCALA_VERSION = "2.13"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
DEBIAN_PACKAGES = {"java": "default-jre-headless", "mvn": "maven"}
DOWNLOAD_TIMEOUT_S = 540
TOOL_TIMEOUT_S = 180
TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_ARTIFACTS = (
    ("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
)

_LOG4J = """\
log4j.rootLogger=${landline.log.level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=${landline.log.target}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaDistUnavailableError(RuntimeError):
    """Apache Kafka's jars cannot be had; the message is one line that says what to do."""


def cache_dir() -> Path:
    """Returns the cache root that all checkouts on this machine share."""
    return Path(os.environ.get("LANDLINE_CACHE", "/var/cache/landline"))


@cache
def jar_dir() -> Path:
    """Returns the directory of Kafka's jars, obtaining them first when the cache lacks them.

    Raises ``KafkaDistUnavailableError`` when java or mvn is missing, or the download fails.
    """
    _require("java")
    target = cache_dir() / "kafka" / KAFKA_VERSION
    if not target.is_dir():
        with _locked(target.parent / f"{KAFKA_VERSION}.lock"):
            if not target.is_dir():
                _download_into(target)
    return target


def classpath() -> str:
    """Returns the value of java's ``-cp`` for Kafka's server and tools, with a log4j configuration in it."""
    return f"{jar_dir()}:{jar_dir()}/*"


def java_command(
    main_class: str, *args: str, jvm: Sequence[str] = (), log_target: str = "System.out"
) -> list[str]:
    """Returns the command line that runs ``main_class``; ``jvm`` holds its flags, such as ``-Xmx256m``."""
    level = "INFO" if log_target == "System.out" else "WARN"
    log_flags = [f"-Dlandline.log.level={level}", f"-Dlandline.log.target={log_target}"]
    return ["java", *jvm, *log_flags, "-cp", classpath(), main_class, *args]


def run_tool(
    main_class: str, *args: str, timeout_s: float = TOOL_TIMEOUT_S, input_text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command-line tools to its end; the caller judges the exit code and the texts."""
    command = java_command(main_class, *args, jvm=TOOL_JVM, log_target="System.err")
    return subprocess.run(
        command, input=input_text, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def dump_log_segments(files: Sequence[Path], *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs Kafka's DumpLogSegments over segment, index or snapshot files of one log dir."""
    joined = ",".join(str(file) for file in files)
    return run_tool("kafka.tools.DumpLogSegments", "--files", joined, *flags)


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise KafkaDistUnavailableError(
            f"Apache Kafka {KAFKA_VERSION} needs {program}: apt-get install {' '.join(DEBIAN_PACKAGES.values())}"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise KafkaDistUnavailableError(
            f"cannot write the cache {path.parent}: {error.strerror}; set LANDLINE_CACHE to a writable directory"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download_into(target: Path) -> None:
    _require("mvn")
    with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as building:
        jars = Path(building) / "jars"
        pom = Path(building) / "pom.xml"
        pom.write_text(_pom())
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            COPY_GOAL,
            f"-DoutputDirectory={jars}",
            "-DincludeScope=runtime",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise KafkaDistUnavailableError(
                f"mvn could not get Kafka {KAFKA_VERSION}: {_first_error(done.stdout)}"
            )
        (jars / "log4j.properties").write_text(_LOG4J)
        jars.rename(target)


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if "ERROR" in line]
    return errors[0] if errors else output[-300:]


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _ARTIFACTS
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>landline</groupId><artifactId>kafka-dist</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


if __name__ == "__main__":
    print(jar_dir())
