"""A Landline broker with one rule broken: ``python -m tests.support.mutated_broker MUTATION
start server.properties``.

``tests.support.mutations`` lists what can be broken. Only for tests that must fail under it.
"""

from __future__ import annotations

import sys

from broker.__main__ import main
from tests.support.mutations import MUTATIONS

if __name__ == "__main__":
    MUTATIONS[sys.argv.pop(1)].apply()
    sys.exit(main())
