"""The part of the table of intended differences that is about requests which no client should send."""

from __future__ import annotations

from typing import Final

from broker.protocol.api_keys import ApiKey
from tests.differential.compare import ABSENT, ANYTHING, Intended

WRONG_REQUEST: Final = "the request is wrong, not the server"
_ONCE: Final = (
    "what a request names twice is told once, with all that was asked of it, so that a few bytes never make a large "
    "answer"
)
_NOTHING: Final = (
    "Kafka never answers a request for nothing; its sender waits, and so does what it sent behind it"
)
_NO_EFFECT: Final = (
    "a broker's config that Landline does not have, or reads only when it starts, is refused: it would be kept without "
    "an effect"
)
_NO_POLICY: Final = "a topic needs a cleanup policy: with none its log would grow for ever"
_NO_GROUP: Final = "a TxnOffsetCommit that is refused makes no group"
WRONG_REQUESTS: Final[tuple[Intended, ...]] = (
    Intended(
        [ApiKey.FETCH],
        "*error_code",
        ANYTHING,
        "INVALID_REQUEST",
        "an unknown isolation level is refused even where there is nothing to read; where there is, Kafka answers "
        "UNKNOWN_SERVER_ERROR",
        where="wrong reads/fetch * isolation*",
    ),
    Intended(
        [ApiKey.FETCH],
        "responses*",
        ANYTHING,
        ANYTHING,
        "the error of the whole request stands beside each partition too, in all versions",
        where="wrong reads/fetch * isolation*",
    ),
    *(
        Intended([key], path, "UNKNOWN_SERVER_ERROR", "INVALID_REQUEST", WRONG_REQUEST, where)
        for key, path, where in (
            (ApiKey.FETCH, "*/error_code", "wrong reads/fetch less than no bytes*"),
            (ApiKey.LIST_OFFSETS, "*/error_code", "wrong reads/list * isolation"),
            (ApiKey.METADATA, "topics/*/error_code", "wrong names/metadata of neither name nor id*"),
        )
    ),
    Intended(
        [
            ApiKey.FIND_COORDINATOR,
            ApiKey.OFFSET_FETCH,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.DESCRIBE_PRODUCERS,
        ],
        "* #1/*",
        ANYTHING,
        ABSENT,
        _ONCE,
        where="wrong names/*",
    ),
    Intended(
        [ApiKey.OFFSET_FETCH],
        "groups/g/topics*",
        ANYTHING,
        ANYTHING,
        _ONCE,
        where="wrong names/offsets of one group *",
    ),
    Intended(
        [ApiKey.DESCRIBE_PRODUCERS],
        "topics/*/partitions/1/*",
        ABSENT,
        ANYTHING,
        _ONCE,
        where="wrong names/producers of a topic in two rows",
    ),
    *(
        Intended([key], "*", ANYTHING, ANYTHING, _NOTHING, where)
        for key, where in (
            (ApiKey.OFFSET_FETCH, "wrong names/offsets of no group"),
            (ApiKey.ADD_PARTITIONS_TO_TXN, "wrong transactions/add nothing"),
        )
    ),
    *(
        Intended([key], path, theirs, ours, _NO_GROUP, where=f"wrong transactions/{step}")
        for key, path, theirs, ours, step in (
            (ApiKey.LIST_GROUPS, "groups/doubted/*", ANYTHING, ABSENT, "groups after a refused commit"),
            (ApiKey.DESCRIBE_GROUPS, "groups/doubted/group_state", "Empty", "Dead", "describe the group"),
            (
                ApiKey.DELETE_GROUPS,
                "results/doubted/error_code",
                "NONE",
                "GROUP_ID_NOT_FOUND",
                "delete the group",
            ),
        )
    ),
    Intended(
        [ApiKey.INCREMENTAL_ALTER_CONFIGS],
        "*/error_code",
        "INVALID_REQUEST",
        "INVALID_CONFIG",
        "the error says that the config is wrong or cannot be changed",
        where="odd configs/* of a* broker*",
    ),
    *(
        Intended([ApiKey.INCREMENTAL_ALTER_CONFIGS], f"*/error_{field}", theirs, ours, why, where)
        for why, where in (
            (_NO_EFFECT, "odd configs/* of a* broker*"),
            (_NO_POLICY, "odd configs/cleanup.policy= of a topic"),
        )
        for field, theirs, ours in (("code", "NONE", "INVALID_CONFIG"), ("message", "None", "a text"))
    ),
    Intended(
        [ApiKey.CREATE_TOPICS],
        "topics/*",
        ANYTHING,
        ANYTHING,
        _NO_POLICY,
        where="odd configs/cleanup.policy= of a new topic",
    ),
)
