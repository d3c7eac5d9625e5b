"""``python -m compare.storm zookeeper --sessions N`` and ``controller --brokers N``: print a time, and
save it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from compare.manifest import processor, revision
from compare.storm.ensemble import ensemble
from compare.storm.sessions import Address, StormError
from compare.storm.storms import Storm, controller_storm, zookeeper_storm

SCHEMA_VERSION = 1
OTHER_FILES = 128
_connect = click.option(
    "--connect",
    metavar="HOST:PORT,...",
    help="A ZooKeeper ensemble; else three servers on loopback are started.",
)
_output = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Appends to this storms.json."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measures what members of a large cluster share, in one start of all at once."""


@main.command()
@click.option(
    "--sessions", type=click.IntRange(1), required=True, help="How many, each with a broker's node."
)
@_connect
@_output
def zookeeper(sessions: int, connect: str | None, output: Path | None) -> None:
    """Open SESSIONS sessions at once, and wait until the last has its node."""
    _make(lambda addresses: zookeeper_storm(addresses, sessions), connect, output, sessions)


@main.command()
@click.option("--brokers", type=click.IntRange(1), required=True, help="How many, besides the controller.")
@click.option("--limit", default=600.0, show_default=True, help="Seconds until it is given up.")
@_connect
@_output
def controller(brokers: int, limit: float, connect: str | None, output: Path | None) -> None:
    """Register BROKERS brokers at once with a real controller, and wait until each was told of all."""
    _make(lambda addresses: controller_storm(addresses, brokers, limit), connect, output, 2 * brokers)


def _make(
    storm: Callable[[Sequence[Address]], Awaitable[Storm]],
    connect: str | None,
    output: Path | None,
    connections: int,
) -> None:
    # On SIGTERM its servers are stopped too, as after ^C.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        allow_files(connections + OTHER_FILES)
        with _addresses(connect) as addresses:
            made = asyncio.run(_awaited(storm, addresses))
    except StormError as error:
        sys.exit(f"storm: {error}")
    print(line_of(made))  # noqa: T201 - the command's output
    if output:
        keep(output, made)


async def _awaited(storm: Callable[[Sequence[Address]], Awaitable[Storm]], addresses: list[Address]) -> Storm:
    return await storm(addresses)


def line_of(made: Storm) -> str:
    """One line that describes a storm."""
    if made.storm == "zookeeper":
        return f"{made.members:,} sessions have their nodes after {made.seconds:.2f} s"
    return (
        f"{made.members:,} brokers were told of all {made.seconds:.2f} s after the last had registered (which took "
        f"{made.registered_seconds:.2f} s): {made.requests:,} requests, {made.received_mib:,.1f} MiB"
    )


def keep(path: Path, made: Storm) -> None:
    """Appends a record: the measurement, its time, and the machine. Raises OSError."""
    content: dict[str, Any] = {"schema": SCHEMA_VERSION, "storms": []}
    if path.exists():
        content = json.loads(path.read_text(encoding="utf-8"))
    content["storms"].append(
        {
            **asdict(made),
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "revision": revision(),
            "cores": os.cpu_count(),
            "processor": processor(),
            "kernel": platform.release(),
        }
    )
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _addresses(connect: str | None) -> Iterator[list[Address]]:
    if connect is None:
        with ensemble() as addresses:
            yield addresses
        return
    pairs = [text.rpartition(":") for text in connect.split(",")]
    if not all(host and port.isdecimal() for host, _, port in pairs):
        raise StormError(f"--connect {connect}: give HOST:PORT, more of them behind commas")
    yield [(host, int(port)) for host, _, port in pairs]


def allow_files(wanted: int) -> None:
    """Raises this process's limit of open files, which its children inherit; each connection is one.
    Raises StormError.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError) as error:
        raise StormError(
            f"{wanted:,} open files are needed, {hard:,} are allowed: raise the limit (ulimit -Hn), or ask for fewer"
        ) from error


if __name__ == "__main__":
    main()
