"""The command-line options of the pipeline's jobs, and the frozen values made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import click

_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")

Flag = Callable[..., Any]
"""One of click's decorators."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of every job. Directories are in Spark's form: a path or a URI."""

    bootstrap_servers: str
    topics: str
    output: str
    checkpoint: str
    dead_letter_topic: str
    trigger: str
    starting_offsets: str
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    available_now: bool
    shuffle_partitions: int
    master: str | None
    driver_host: str | None
    log_level: str
    client_config: str | None


@dataclass(frozen=True, slots=True)
class JournalOptions(StreamOptions):
    """All options of ``journal_stream``: those of every job, and its windows."""

    windows_topic: str
    window: str
    slide: str
    watermark: str
    max_ahead: str


Options = TypeVar("Options", bound=StreamOptions)


def interval(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Accepts only Spark's plain intervals, because the text goes into SQL."""
    if value is not None and not _INTERVAL.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} is not an interval such as '10 seconds' or '1 minute'", param=parameter
        )
    return value


def option(flag: str, help_text: str, **settings: Any) -> Flag:
    """One option, with its default shown if it has one."""
    default = settings.get("default")
    return click.option(
        flag, help=help_text, show_default=default is not None and not callable(default), **settings
    )


def in_shared_dir(name: str) -> str | None:
    """A directory in the inventory's shared one, which `fab spark.submit` passes; None if it passed none."""
    shared = os.environ.get("LANDLINE_SHARED_DIR")
    return f"file://{shared}/{name}" if shared else None


BROKERS: Final = option(
    "--bootstrap-servers",
    "Brokers, host:port, comma-separated; `fab spark.submit` gives the inventory's.",
    required=True,
    envvar="LANDLINE_BOOTSTRAP_SERVERS",
)

SOURCE_AND_SINK: Final = (
    BROKERS,
    option("--output", "Directory of the Parquet output; every executor must see it.", required=True),
    option("--checkpoint", "Directory of the checkpoints; every executor must see it.", required=True),
)  # fmt: skip

PACE: Final = (
    option("--client-config", "File of Kafka's settings for clients, such as TLS and a login; `fab spark.submit` gives "
           "the one of the brokers' hosts.", envvar="LANDLINE_CLIENT_CONFIG",
           type=click.Path(exists=True, dir_okay=False)),
    option("--trigger", "Pause between batches.", default="5 seconds", callback=interval),
    option("--starting-offsets", "Where to begin when there is no checkpoint.", default="earliest",
           type=click.Choice(["earliest", "latest"])),
    option("--max-offsets-per-trigger", "Most records of one batch; all that there are unless given.",
           type=click.IntRange(min=1)),
    option("--fail-on-data-loss/--no-fail-on-data-loss", "Stop when records to read are already deleted.",
           default=True),
    option("--available-now", "Read what is there now, write it, and end.", is_flag=True),
    option("--shuffle-partitions", "Partitions of the job's state; fixed by the first run.",
           default=4, type=click.IntRange(min=1)),
    option("--log-level", "What Spark's own log tells.", default="WARN",
           type=click.Choice(["ERROR", "WARN", "INFO", "DEBUG"])),
    option("--master", "Spark's master; spark-submit's own unless given."),
    option("--driver-host", "Address at which executors reach this driver; Spark's guess unless given."),
)  # fmt: skip

_JOURNAL: Final = (
    BROKERS,
    option("--output", "Directory of the Parquet output; every executor must see it; by default in the inventory's "
           "spark_shared_dir.", required=True, default=lambda: in_shared_dir("journal_stream/records")),
    option("--checkpoint", "Directory of the checkpoints, likewise.",
           required=True, default=lambda: in_shared_dir("journal_stream/checkpoint")),
    option("--topics", "Topics to read, comma-separated.", default="landline.journal"),
    option("--windows-topic", "Topic for the window counts.", default="landline.journal.windows"),
    option("--dead-letter-topic", "Topic for what does not parse.", default="landline.journal.dead-letters"),
    option("--window", "Length of a window.", default="1 minute", callback=interval),
    option("--slide", "Distance of window starts; a window's length unless given.", callback=interval),
    option("--watermark", "How late an entry is still counted.", default="1 minute", callback=interval),
    option("--max-ahead", "How far ahead of its record an entry may be.", default="10 minutes",
           callback=interval),
    *PACE,
)  # fmt: skip


def with_options(
    flags: Sequence[Flag], collect: Callable[[dict[str, Any]], Options]
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Decorates a command with ``flags``; it is called with the value that ``collect`` returns."""

    def decorate(command: Callable[[Options], None]) -> Callable[..., None]:
        def called(**values: Any) -> None:
            command(collect(values))

        wrapped: Callable[..., None] = called
        for flag in reversed(flags):
            wrapped = flag(wrapped)
        wrapped.__doc__ = command.__doc__
        return wrapped

    return decorate


def picked(kind: type[Options], values: dict[str, Any]) -> Options:
    """The fields of ``kind`` from the parsed values."""
    return kind(**{field.name: values[field.name] for field in fields(kind)})


def journal_options_from(values: dict[str, Any]) -> JournalOptions:
    """The parsed values as options: windows tumble unless a slide is given."""
    return picked(JournalOptions, {**values, "slide": values["slide"] or values["window"]})


journal_options = with_options(_JOURNAL, journal_options_from)
