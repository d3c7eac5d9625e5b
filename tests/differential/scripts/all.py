"""All scripts, in the order in which they run: later ones see what earlier ones have left."""

from __future__ import annotations

from typing import Final

from tests.differential.script import Script
from tests.differential.scripts.cluster import CREDENTIALS, FINDING, MOVES, QUOTAS
from tests.differential.scripts.configs import ALTERATION, DESCRIPTION
from tests.differential.scripts.every_request import CONTROLLERS, EVERY_REQUEST
from tests.differential.scripts.groups import GROUPS, PAIRS, STATIC_MEMBERS
from tests.differential.scripts.odd_configs import ODD_CONFIGS
from tests.differential.scripts.old_formats import OLD_FORMATS
from tests.differential.scripts.records import LEADERSHIP, PRODUCE, READING, SESSIONS, SHORTENING
from tests.differential.scripts.topics import CREATION, DELETION, GROWTH, METADATA
from tests.differential.scripts.transactions import FENCED_OFFSETS, MARKERS, TRANSACTIONS
from tests.differential.scripts.wrong_administration import WRONG_ADMINISTRATION, WRONG_TRANSACTIONS
from tests.differential.scripts.wrong_requests import WRONG_NAMES, WRONG_READS

SCRIPTS: Final[tuple[Script, ...]] = (
    EVERY_REQUEST,
    CONTROLLERS,
    CREATION,
    METADATA,
    GROWTH,
    DELETION,
    DESCRIPTION,
    ALTERATION,
    PRODUCE,
    READING,
    SESSIONS,
    SHORTENING,
    LEADERSHIP,
    GROUPS,
    STATIC_MEMBERS,
    PAIRS,
    TRANSACTIONS,
    FENCED_OFFSETS,
    MARKERS,
    MOVES,
    QUOTAS,
    CREDENTIALS,
    FINDING,
    ODD_CONFIGS,
    OLD_FORMATS,
    WRONG_READS,
    WRONG_NAMES,
    WRONG_TRANSACTIONS,
    WRONG_ADMINISTRATION,
)
