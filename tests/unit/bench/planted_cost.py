"""``python -m tests.unit.bench.planted_cost`` under callgrind: two workloads, and both again with a dearer Produce."""

from __future__ import annotations

import json

from bench.guard.counted import count_all
from bench.guard.stage import Stage, staged_broker
from bench.guard.workloads.groups import GroupHeartbeat
from bench.guard.workloads.produce import Produce
from broker.protocol.api_keys import ApiKey
from broker.utils.logging_setup import configure_logging

# Some 10,000 instructions more, a twentieth of a Produce.
LOOPS = 150


def after(name: str) -> str:
    """What a workload is called when Produce does more."""
    return f"{name}-after"


def make_dearer(stage: Stage, api_key: ApiKey) -> None:
    """Every request of the API does a little more."""
    served = stage.server._apis._served[api_key]
    handler = served.handler

    def dearer(request, ctx):
        for number in range(LOOPS):
            request, ctx = (request, ctx) if number >= 0 else (ctx, request)
        return handler(request, ctx)

    served.handler = dearer


def main() -> None:
    configure_logging({"LANDLINE_LOG_LEVEL": "warning"})
    with staged_broker() as stage:
        workloads = [
            Produce(stage, "produce", 16 * 1024, acks=1, moving_share=0.4, per_slice=20),
            GroupHeartbeat(stage),
        ]
        count_all(stage, workloads)
        make_dearer(stage, ApiKey.PRODUCE)
        count_all(stage, workloads)
    names = [workload.name for workload in workloads]
    print(json.dumps([*names, *map(after, names)]))


if __name__ == "__main__":
    main()
