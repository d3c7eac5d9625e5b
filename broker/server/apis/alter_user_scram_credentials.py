"""AlterUserScramCredentials (KIP-554): sets and removes users' SCRAM credentials, on the controller.

Clients send salted passwords, of which the keys are kept and nothing else. Each user's changes are made
together or not at all.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterUserScramCredentialsRequest
from broker.sasl.scram import ALGORITHMS, credential_of
from broker.server.apis.context import ApiContext
from broker.server.apis.store_failures import failed
from broker.zookeeper.store import StoreError

_log = structlog.get_logger(__name__)
_LONGEST_SALT: Final = 1024
_MECHANISMS: Final[Mapping[int, str]] = {algorithm.number: name for name, algorithm in ALGORITHMS.items()}


@dataclass(slots=True)
class UserChange:
    """What is to be done with one user's credentials: by mechanism, the new text or None to remove it."""

    texts: dict[str, str | None] = field(default_factory=dict)

    @property
    def removed(self) -> list[str]:
        return [mechanism for mechanism, text in self.texts.items() if text is None]


def handle(request: Request, message: AlterUserScramCredentialsRequest, ctx: ApiContext) -> Fields:
    if not ctx.controller.is_active:
        refusal = KafkaError(Errors.NOT_CONTROLLER, f"broker {ctx.broker_id} is not the controller")
        return error_response(message, refusal)
    results = []
    for user, change in judge(message.upsertions, message.deletions).items():
        error: KafkaError | None = None
        try:
            if isinstance(change, KafkaError):
                error = change
            else:
                _alter(user, change, ctx)
        except KafkaError as refusal:
            error = refusal
        except StoreError as failure:
            error = failed(request, user, failure)
        results.append(_result(user, error))
    return _response(results)


def error_response(message: AlterUserScramCredentialsRequest, error: KafkaError) -> Fields:
    """The same error for every user."""
    names = [each.name for each in message.deletions] + [each.name for each in message.upsertions]
    users = dict.fromkeys(names)
    return _response([_result(user, error) for user in users])


def judge(upsertions: Sequence[Any], deletions: Sequence[Any]) -> dict[str, UserChange | KafkaError]:
    """Each user's changes, or why none of them is made."""
    counts = Counter((change.name, int(change.mechanism)) for change in (*upsertions, *deletions))
    judged: dict[str, UserChange | KafkaError] = {}
    for change, text in _changes(upsertions, deletions):
        before = judged.setdefault(change.name, UserChange())
        if isinstance(before, KafkaError):
            continue
        if isinstance(text, KafkaError):
            judged[change.name] = text
        elif counts[change.name, int(change.mechanism)] > 1:
            judged[change.name] = KafkaError(
                Errors.DUPLICATE_RESOURCE, "a credential can be altered only once in a request"
            )
        else:
            before.texts[_MECHANISMS[int(change.mechanism)]] = text
    return judged


def _changes(
    upsertions: Sequence[Any], deletions: Sequence[Any]
) -> Iterator[tuple[Any, str | KafkaError | None]]:
    for deletion in deletions:
        yield deletion, _complaint(deletion)
    for upsertion in upsertions:
        complaint = _complaint(upsertion, int(upsertion.iterations)) or _size_complaint(upsertion)
        yield upsertion, complaint or _text_of(upsertion)


def _complaint(change: Any, iterations: int | None = None) -> KafkaError | None:
    if not change.name:
        return KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, "a user name must not be empty")
    mechanism = _MECHANISMS.get(int(change.mechanism))
    if mechanism is None:
        return KafkaError(
            Errors.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {int(change.mechanism)}"
        )
    algorithm = ALGORITHMS[mechanism]
    if iterations is not None and not algorithm.min_iterations <= iterations <= algorithm.max_iterations:
        return KafkaError(
            Errors.UNACCEPTABLE_CREDENTIAL,
            f"{iterations} iterations: {algorithm.min_iterations} to {algorithm.max_iterations} are possible",
        )
    return None


def _size_complaint(upsertion: Any) -> KafkaError | None:
    """The salt goes into a znode, and to every client that logs in, even with a wrong password."""
    if not 0 < len(upsertion.salt) <= _LONGEST_SALT:
        return KafkaError(
            Errors.UNACCEPTABLE_CREDENTIAL,
            f"a salt has 1 to {_LONGEST_SALT} bytes, not {len(upsertion.salt)}",
        )
    size = hashlib.new(ALGORITHMS[_MECHANISMS[int(upsertion.mechanism)]].hash_name).digest_size
    if len(upsertion.salted_password) != size:
        return KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, f"a salted password has {size} bytes")
    return None


def _text_of(upsertion: Any) -> str:
    mechanism = _MECHANISMS[int(upsertion.mechanism)]
    salted, salt = bytes(upsertion.salted_password), bytes(upsertion.salt)
    return str(credential_of(mechanism, salted, salt, int(upsertion.iterations)))


def _alter(user: str, change: UserChange, ctx: ApiContext) -> None:
    before = ctx.store.entity_config("users", user)
    if any(mechanism not in before for mechanism in change.removed):
        raise KafkaError(Errors.RESOURCE_NOT_FOUND, "a credential to be deleted does not exist")

    def changed(configs: dict[str, str]) -> dict[str, str]:
        kept = {name: text for name, text in configs.items() if name not in change.texts}
        return kept | {mechanism: text for mechanism, text in change.texts.items() if text is not None}

    ctx.store.change_entity_config("users", user, changed)
    _log.info(
        "scram_credentials_altered",
        user=user,
        set=", ".join(mechanism for mechanism, text in change.texts.items() if text is not None),
        removed=", ".join(change.removed),
    )


def _result(user: str, error: KafkaError | None) -> Fields:
    if error is None:
        return {"user": user, "error_code": Errors.NONE, "error_message": None}
    return {"user": user, "error_code": error.error_code, "error_message": error.message}


def _response(results: list[Fields]) -> Fields:
    return {"throttle_time": 0, "results": results}
