"""What a pipeline job is told on its command line: the option list and the frozen result."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Everything ``journal_stream`` needs. Directories are as Spark takes them: a path or a URI."""

    bootstrap_servers: str
    topics: str
    output: str
    checkpoint: str
    windows_topic: str
    dead_letter_topic: str
    window: str
    slide: str
    watermark: str
    max_ahead: str
    trigger: str
    starting_offsets: str
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    available_now: bool
    shuffle_partitions: int
    master: str | None
    driver_host: str | None
    log_level: str


def _interval(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Accepts Spark's plain intervals only: the text goes into SQL."""
    if value is not None and not _INTERVAL.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} is not an interval such as '10 seconds' or '1 minute'", param=parameter
        )
    return value


def _option(flag: str, help_text: str, **settings: Any) -> Callable[..., Any]:
    return click.option(flag, help=help_text, show_default=settings.get("default") is not None, **settings)


_OPTIONS = (
    _option("--bootstrap-servers", "Brokers, host:port, comma-separated.", required=True),
    _option("--topics", "Topics to read, comma-separated.", default="landline.journal"),
    _option("--output", "Directory of the Parquet output; every executor must see it.", required=True),
    _option("--checkpoint", "Directory of the checkpoints; every executor must see it.", required=True),
    _option("--windows-topic", "Topic for the window counts.", default="landline.journal.windows"),
    _option("--dead-letter-topic", "Topic for what does not parse.", default="landline.journal.dead-letters"),
    _option("--window", "Length of a window.", default="1 minute", callback=_interval),
    _option("--slide", "Distance of window starts; a window's length unless given.", callback=_interval),
    _option("--watermark", "How late an entry is still counted.", default="1 minute", callback=_interval),
    _option("--max-ahead", "How far ahead of its record an entry may be.", default="10 minutes",
            callback=_interval),
    _option("--trigger", "Pause between batches.", default="5 seconds", callback=_interval),
    _option("--starting-offsets", "Where to begin when there is no checkpoint.", default="earliest",
            type=click.Choice(["earliest", "latest"])),
    _option("--max-offsets-per-trigger", "Most records of one batch; all that there are unless given.",
            type=click.IntRange(min=1)),
    _option("--fail-on-data-loss/--no-fail-on-data-loss", "Stop when records to read are already deleted.",
            default=True),
    _option("--available-now", "Read what is there now, write it, and end.", is_flag=True),
    _option("--shuffle-partitions", "Partitions of the windows' state; fixed by the first run.",
            default=4, type=click.IntRange(min=1)),
    _option("--log-level", "What Spark's own log tells.", default="WARN",
            type=click.Choice(["ERROR", "WARN", "INFO", "DEBUG"])),
    _option("--master", "Spark's master; spark-submit's own unless given."),
    _option("--driver-host", "Address at which executors reach this driver; Spark's guess unless given."),
)  # fmt: skip


def stream_options(command: Callable[[StreamOptions], None]) -> Callable[..., None]:
    """Decorates ``command`` with the options above; it is called with one ``StreamOptions``."""

    def collect(**values: Any) -> None:
        command(options_from(values))

    wrapped: Callable[..., None] = collect
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    wrapped.__doc__ = command.__doc__
    return wrapped


def options_from(values: dict[str, Any]) -> StreamOptions:
    """The parsed values as options: windows tumble unless a slide is given."""
    values = {**values, "slide": values["slide"] or values["window"]}
    return StreamOptions(**{field.name: values[field.name] for field in fields(StreamOptions)})
