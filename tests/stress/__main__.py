"""The command. Locks are traced from before the broker's modules are loaded; the process ends whatever hangs in it."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.stress.lock_graph import LockGraph
from tests.stress.lock_sites import lock_sites
from tests.stress.lock_table import written_order
from tests.stress.traced import traced_locks


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="whose random numbers; another each time")
    parser.add_argument("--stall", type=float, default=30, help="seconds after which a thread stands still")
    parser.add_argument(
        "--plant", help="a defect put in on purpose, by its name in planted.py or mutations.py"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"stress: {options.seconds:g} s with seed {seed}", flush=True)
    graph = LockGraph(written_order())
    with (
        traced_locks(lock_sites(), graph),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
    ):
        from tests.stress.run import run
        from tests.stress.watch import Watch

        if options.plant:
            from tests.stress.planted import PLANTED
            from tests.support.mutations import MUTATIONS

            {**MUTATIONS, **PLANTED}[options.plant].apply()
        watch = Watch(options.stall)
        done = run(Path(directory), options.seconds, seed, watch, graph)
        problems = graph.problems + watch.problems
    for problem in problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    verdict = f"{len(problems)} problems" if problems else "clean"
    print(f"stress: {verdict} with seed {seed}: {done}; {len(graph.witnesses)} orders of locks", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
