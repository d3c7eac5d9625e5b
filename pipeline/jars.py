"""Downloads the four jars of Spark's Kafka connector, once, into the cache.

Maven gets each jar by its coordinates, and nothing is resolved transitively: the connector's other
dependencies are in pyspark. Each file's SHA-256 is checked before use. ``python -m pipeline.jars`` downloads
the jars and prints their paths, comma-separated, as ``spark-submit --jars`` expects them. After that no
network is needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_CACHE = "/var/cache/landline"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
MAVEN_TIMEOUT_S = 300


class JarError(Exception):
    """A jar is not available; the message says which one and what to do."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact by its Maven coordinates, and the SHA-256 of its file in hex."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


# The set for pyspark 4.0.0. Later connectors do not resolve completely: docs/spark.md.
CONNECTOR = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.0.0",
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.0",
        "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.0",
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)


def cache_dir() -> Path:
    """The directory of the jars: ``spark-jars`` under ``LANDLINE_CACHE``."""
    return Path(os.environ.get("LANDLINE_CACHE", DEFAULT_CACHE)) / "spark-jars"


def connector_jars(directory: Path | None = None) -> list[Path]:
    """The paths of the connector's jars; downloads missing ones. Raises ``JarError``."""
    return present_jars(CONNECTOR, directory or cache_dir())


def present_jars(jars: Sequence[Jar], directory: Path) -> list[Path]:
    """The paths of these jars in the directory; downloads missing ones. Raises ``JarError``."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JarError(
            f"cannot make {directory}: {error.strerror}; set LANDLINE_CACHE to a directory of yours"
        ) from error
    return [_present_or_fetched(jar, directory) for jar in jars]


def _present_or_fetched(jar: Jar, directory: Path) -> Path:
    path = directory / jar.file_name
    if not (path.is_file() and _digest(path) == jar.sha256):
        _fetch(jar, directory)
    return path


def _fetch(jar: Jar, directory: Path) -> None:
    """Has Maven copy one jar to a temporary directory, checks it, and moves it in: others never see half
    a file.
    """
    if shutil.which("mvn") is None:
        raise JarError("mvn is not installed; install the Debian package maven, then run again")
    with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as work:
        command = ["mvn", "-q", "-B", COPY_GOAL, f"-Dartifact={jar.coordinates}", f"-DoutputDirectory={work}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False, cwd=work
        )
        if done.returncode != 0:
            raise JarError(
                f"mvn could not fetch {jar.coordinates}:\n{(done.stdout + done.stderr).strip()[-2000:]}"
            )
        fetched = Path(work) / jar.file_name
        if (digest := _digest(fetched)) != jar.sha256:
            raise JarError(
                f"{jar.coordinates} is not the file that was pinned: SHA-256 {digest}, not {jar.sha256}"
            )
        fetched.replace(directory / jar.file_name)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Downloads the jars and prints their paths; on failure returns 1 with one line on stderr."""
    try:
        print(",".join(map(str, connector_jars())))
    except JarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
