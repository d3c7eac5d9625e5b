"""The part of the table of intended differences that is seen where three brokers are."""

from __future__ import annotations

from typing import Final

from broker.protocol.api_keys import ApiKey
from tests.differential.compare import ABSENT, ANYTHING, Intended

_ELSEWHERE: Final = "every request elsewhere/*"
OF_THREE: Final[tuple[Intended, ...]] = (
    *(
        Intended([key], "*/error_message", "None", "a text", "an error says what was wrong", _ELSEWHERE)
        for key in (
            ApiKey.CREATE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        )
    ),
    Intended(
        [ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS],
        "error_message",
        "a text",
        "None",
        "the error's name says all",
        where=_ELSEWHERE,
    ),
    Intended(
        [ApiKey.CONTROLLED_SHUTDOWN],
        "error_code",
        "STALE_CONTROLLER_EPOCH",
        "NOT_CONTROLLER",
        "the error says that another broker is to be asked; who stops looks for it after either",
        where=_ELSEWHERE,
    ),
    Intended(
        [ApiKey.ELECT_LEADERS],
        "error_code",
        "NONE",
        "NOT_CONTROLLER",
        "the error that each partition has stands for the whole request too",
        where=_ELSEWHERE,
        versions=(1, 2),
    ),
    Intended(
        [ApiKey.OFFSET_FETCH],
        "topics*",
        ANYTHING,
        ANYTHING,
        "version 1 has the error in partitions alone, so that they are there, and the client looks for its coordinator",
        where=_ELSEWHERE,
        versions=(1,),
    ),
    *(
        Intended(
            [ApiKey.FETCH],
            "*/current_leader/*",
            ABSENT,
            ANYTHING,
            "the leader is told in every version that has the field (KIP-595)",
            where=where,
            versions=range(12, 16),
        )
        for where in (_ELSEWHERE, "without the third/fetch *")
    ),
)
