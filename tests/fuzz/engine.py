"""One target under atheris, in a process of its own: ``python -m tests.fuzz.engine NAME [options of libFuzzer]``."""

from __future__ import annotations

import logging
import sys

import atheris
import structlog

# What is imported in here is instrumented: the decoders and the parser of HTTP, and nothing that only helps.
with atheris.instrument_imports(include=["broker", "email", "http", "kio"]):
    from tests.fuzz.targets import BY_NAME


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    target = BY_NAME[sys.argv[1]]
    # To merge, libFuzzer starts its program once more: by a shell, and by this name.
    again = f"{sys.executable} -m tests.fuzz.engine {target.name}"
    atheris.Setup([again, *sys.argv[2:]], target.try_)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
