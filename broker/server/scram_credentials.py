"""The SCRAM credentials of all users, as in ``/config/users``. Read at the start and after each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from broker.sasl.credential import Known, ScramCredential
from broker.sasl.decoys import Form
from broker.sasl.scram import ALGORITHMS
from broker.zookeeper import znodes

_log = structlog.get_logger(__name__)
_USERS = "users/"
_MOST_FORMS: Final = 16  # each is a hash more for each unknown name


class ScramCredentials:
    """The users' SCRAM credentials by mechanism; Kafka's CredentialCache. One thread at a time changes it, and
    any may look up.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in ALGORITHMS}
        self._forms: dict[str, tuple[Form, ...]] = {}

    def load(self, users: Mapping[str, Mapping[str, str]]) -> None:
        """Takes the configs of all users."""
        for user, configs in users.items():
            self._take(user, configs)

    def on_entity_config(self, entity_path: str, configs: Mapping[str, str]) -> None:
        """Takes an entity's changed configs; only those of users matter, and of no client id of theirs."""
        name = entity_path.removeprefix(_USERS)
        if name != entity_path and "/" not in name:
            self._take(znodes.desanitize(name), configs)

    def find(self, mechanism: str, user: str) -> Known | None:
        credential = self._known[mechanism].get(user)
        return None if credential is None else Known(credential, user)

    def forms(self, mechanism: str) -> tuple[Form, ...]:
        """The most frequent forms of a mechanism's credentials."""
        forms = self._forms.get(mechanism)
        if forms is None:
            counts = Counter(Form.of(each) for each in list(self._known[mechanism].values()))
            forms = self._forms[mechanism] = tuple(form for form, _ in counts.most_common(_MOST_FORMS))
        return forms

    def _take(self, user: str, configs: Mapping[str, str]) -> None:
        for mechanism, known in self._known.items():
            text = configs.get(mechanism)
            try:
                credential = ScramCredential.parse(text) if text else None
            except ValueError as error:
                _log.warning("scram_credential_unreadable", user=user, mechanism=mechanism, error=str(error))
                credential = None
            if credential is None:
                known.pop(user, None)
            else:
                known[user] = credential
        self._forms.clear()


def without_secrets(configs: Mapping[str, str]) -> dict[str, str]:
    """An entity's configs without its credentials, for whatever shows them."""
    return {name: text for name, text in configs.items() if name not in ALGORITHMS}


FindCredential = Callable[[str, str], Known | None]
