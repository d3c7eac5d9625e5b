"""The command `landline doctor`: what is wrong, seen from a client's host or from a broker's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from broker.server.doctor.findings import as_json, as_text, exit_code
from broker.utils.options import Options

EXIT_USAGE: Final = 2

Complain = Callable[[str], None]


def run(options: Options, properties: Mapping[str, str], complain: Complain) -> int:
    """Prints the findings. ``properties`` are the client's, or the broker's if there is a FILE."""
    is_client = bool(options.bootstrap_server or options.command_config)
    if is_client == bool(options.file):
        complain("doctor: give a broker's FILE; or, for a client, --bootstrap-server or --command-config")
        return EXIT_USAGE
    if is_client:
        from broker.server.doctor.from_client import check

        source = options.command_config or "the client's settings"
        findings = check(options.bootstrap_server or "", properties, source, options.within)
    else:
        from broker.server.doctor.from_host import HostCheck

        findings = HostCheck(properties, options.file, options.within)()
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(as_json(findings) if options.json else as_text(findings, colour=colour), flush=True)
    return exit_code(findings)
