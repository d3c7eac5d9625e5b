"""Apache Kafka's own jars: the peer of the tests and the benchmark, and Kafka's command-line tools.

The version is 3.9.1, the last with ZooKeeper, unless another is named: the benchmark runs 4.1 as well.
``mvn`` downloads the jars once, from the repository that this machine's Maven is configured for. They go into
a cache that all checkouts share: ``kafka/<version>`` below ``$LANDLINE_CACHE`` or /var/cache/landline. The
cache is built in a temporary directory and renamed into place under a lock, so parallel test runs and
interrupted downloads do no harm. ``kafka_broker`` starts the brokers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rig.jvm import SHORT_LIVED_JVM

KAFKA_VERSION = "3.9.1"
KRAFT_VERSION = "4.1.1"
SCALA_VERSION = "2.13"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
DEBIAN_PACKAGES = {"java": "default-jre-headless", "mvn": "maven"}
DOWNLOAD_TIMEOUT_S = 540
TOOL_TIMEOUT_S = 180
ARGUMENT_CHARS = 100_000
"""Of one argument; Linux allows 128 KiB."""
TOOL_JVM = ("-Xmx256m", *SHORT_LIVED_JVM)

_LOG4J = """\
log4j.rootLogger=${landline.log.level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=${landline.log.target}
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J2 = """\
rootLogger.level=${sys:landline.log.level}
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class _Logging:
    """The logging library of a Kafka version: an artifact, and its configuration file beside the jars."""

    group: str
    name: str
    version: str
    file_name: str
    content: str


_LOGGING = {
    KAFKA_VERSION: _Logging("org.slf4j", "slf4j-reload4j", "1.7.36", "log4j.properties", _LOG4J),
    KRAFT_VERSION: _Logging(
        "org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3", "log4j2.properties", _LOG4J2
    ),
}


class KafkaDistUnavailableError(RuntimeError):
    """Apache Kafka's jars are not available. The message is one line that says what to do."""


def cache_dir() -> Path:
    """Returns the root of the cache that all checkouts on this machine share."""
    return Path(os.environ.get("LANDLINE_CACHE", "/var/cache/landline"))


@cache
def jar_dir(version: str = KAFKA_VERSION) -> Path:
    """Returns the directory of Kafka's jars, and downloads them first when the cache lacks them.

    Raises ``KafkaDistUnavailableError`` when java or mvn is missing, or the download fails.
    """
    _require("java", version)
    target = cache_dir() / "kafka" / version
    if not target.is_dir():
        with _locked(target.parent / f"{version}.lock"):
            if not target.is_dir():
                _download_into(target, version)
    return target


def classpath(version: str = KAFKA_VERSION) -> str:
    """Returns the value of java's ``-cp`` for Kafka's server and tools; it includes a log4j configuration."""
    return f"{jar_dir(version)}:{jar_dir(version)}/*"


def java_command(
    main_class: str,
    *args: str,
    jvm: Sequence[str] = (),
    log_target: str = "System.out",
    version: str = KAFKA_VERSION,
) -> list[str]:
    """Returns the command line that runs ``main_class``; ``jvm`` holds its flags, such as ``-Xmx256m``."""
    level = "INFO" if log_target == "System.out" else "WARN"
    log_flags = [f"-Dlandline.log.level={level}", f"-Dlandline.log.target={log_target}"]
    return ["java", *jvm, *log_flags, "-cp", classpath(version), main_class, *args]


def run_tool(
    main_class: str, *args: str, timeout_s: float = TOOL_TIMEOUT_S, input_text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command-line tools to completion. The caller checks the exit code and
    the output.
    """
    command = java_command(main_class, *args, jvm=TOOL_JVM, log_target="System.err")
    return subprocess.run(
        command, input=input_text, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def dump_log_segments(files: Sequence[Path], *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs Kafka's DumpLogSegments over segment, index or snapshot files, in as many runs as the command
    line needs.

    Returns the output of all runs and the highest exit code.
    """
    runs = [
        run_tool("kafka.tools.DumpLogSegments", "--files", joined, *flags)
        for joined in _joined([str(file) for file in files])
    ]
    return subprocess.CompletedProcess(
        ["DumpLogSegments", *flags],
        max(run.returncode for run in runs),
        "".join(run.stdout for run in runs),
        "".join(run.stderr for run in runs),
    )


def _joined(names: Sequence[str]) -> list[str]:
    """The names, joined by commas into as few strings as Linux allows as arguments; at least one."""
    strings: list[list[str]] = [[]]
    size = 0
    for name in names:
        size += 1 + len(name)
        if size > ARGUMENT_CHARS:
            strings.append([])
            size = len(name)
        strings[-1].append(name)
    return [",".join(each) for each in strings]


def _require(program: str, version: str) -> None:
    if shutil.which(program) is None:
        raise KafkaDistUnavailableError(
            f"Apache Kafka {version} needs {program}: apt-get install {' '.join(DEBIAN_PACKAGES.values())}"
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


def _download_into(target: Path, version: str) -> None:
    _require("mvn", version)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as building:
        jars = Path(building) / "jars"
        pom = Path(building) / "pom.xml"
        pom.write_text(_pom(version))
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
            raise KafkaDistUnavailableError(f"mvn could not get Kafka {version}: {_first_error(done.stdout)}")
        logging = _LOGGING[version]
        (jars / logging.file_name).write_text(logging.content)
        jars.rename(target)


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if "ERROR" in line]
    return errors[0] if errors else output[-300:]


def _pom(version: str) -> str:
    logging = _LOGGING[version]
    artifacts = (
        ("org.apache.kafka", f"kafka_{SCALA_VERSION}", version),
        ("org.apache.kafka", "kafka-tools", version),
        (logging.group, logging.name, logging.version),
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{release}</version></dependency>"
        for group, name, release in artifacts
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>landline</groupId><artifactId>kafka-dist</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


if __name__ == "__main__":
    print(jar_dir())
