"""`landline topics`: brings about the topics and dynamic configs that a JSON document lists.

What exists and is not listed stays, and is shown as drift. The brokers look at all steps before the first one
is taken. `desired.document` reads the document, `desired.plan` decides, `desired.admin` asks the brokers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.server.cluster_requests import FAILURES
from broker.server.desired.admin import Admin
from broker.server.desired.document import DocumentError, read_document
from broker.server.desired.plan import DesiredPlan, make_plan, table

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1

Complain = Callable[[str], None]


def run(options: Any, properties: Mapping[str, str], complain: Complain) -> int:
    """Runs the command. ``properties`` are those of the broker's file."""
    try:
        wanted = read_document(sys.stdin.read())
        with Admin.of(BrokerConfig.from_properties(properties)) as admin:
            plan = make_plan(wanted, admin.read(wanted))
            if plan.refused:
                complain(f"topics: nothing was changed: {'; '.join(plan.refused)}")
                return EXIT_FAILED
            admin.take(plan.steps, validate_only=True)
            if not options.dry_run:
                admin.take(plan.steps, validate_only=False)
    except (DocumentError, ConfigError, *FAILURES) as error:
        complain(f"topics: {error}")
        return EXIT_FAILED
    _tell(plan, as_json=options.json)
    return EXIT_DONE


def _tell(plan: DesiredPlan, *, as_json: bool) -> None:
    changes = [line for step in plan.steps for line in step.words()]
    if as_json:
        print(json.dumps({"changes": changes, "drift": table(plan.drift)}))
    else:
        print("\n".join([*changes, *table(plan.drift)]), end="\n" if changes or plan.drift else "")
