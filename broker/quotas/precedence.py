"""Which quota applies to a client, and with whom it shares the quota; Kafka's DefaultQuotaCallback.

The most specific quota applies. In this order: user and client id, user and any client id, user, any user and
client id, any user and any client id, any user, client id, any client id. Clients for which the same quota
was found share it by its :class:`Scope`: a user's clients share the user's quota, while a default quota is
one of its own for each user or client id.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.quotas.entities import DEFAULT, QuotaEntity, encoded


class Scope(NamedTuple):
    """Who shares one quota: a user (encoded), a client id (as sent), or both; "" is a part that does not
    matter. The tags of Kafka's metrics.
    """

    user: str
    client_id: str


class QuotaTable:
    """The quotas of one type by entity, and how they are looked up. Not thread-safe.

    ``enabled`` says whether there ever was a quota; as in Kafka it stays so until the broker restarts.
    """

    def __init__(self) -> None:
        self._bounds: dict[QuotaEntity, float] = {}
        self._by_client_id = self._by_user = self._by_both = False

    @property
    def enabled(self) -> bool:
        return self._by_client_id or self._by_user or self._by_both

    def update(self, entity: QuotaEntity, bound: float | None) -> bool:
        """Sets or removes an entity's quota. Returns whether that changed anything."""
        if bound is None:
            return self._bounds.pop(entity, None) is not None
        if entity.user is None:
            self._by_client_id = True
        elif entity.client_id is None:
            self._by_user = True
        else:
            self._by_both = True
        changed = self._bounds.get(entity) != bound
        self._bounds[entity] = bound
        return changed

    def scope(self, user: str, client_id: str) -> Scope:
        """With whom the client shares its quota. ``user`` is encoded.

        With quotas of one level alone, nothing need be looked up.
        """
        if not self._by_user and not self._by_both:
            return Scope("", client_id)
        if not self._by_both and not self._by_client_id:
            return Scope(user, "")
        if not self._by_user and not self._by_client_id:
            return Scope(user, client_id)
        bounds, client = self._bounds, encoded(client_id)
        if QuotaEntity(user, client) in bounds or QuotaEntity(user, DEFAULT) in bounds:
            return Scope(user, client_id)
        if QuotaEntity(user, None) in bounds:
            return Scope(user, "")
        if QuotaEntity(DEFAULT, client) in bounds or QuotaEntity(DEFAULT, DEFAULT) in bounds:
            return Scope(user, client_id)
        return Scope(user, "") if QuotaEntity(DEFAULT, None) in bounds else Scope("", client_id)

    def bound(self, scope: Scope) -> float | None:
        """The quota of a scope; None if there is none.

        Clients without a name, such as those with an empty client id, have the defaults too. In Kafka, which
        does not look these up, they have no limit.
        """
        user, client = scope.user, encoded(scope.client_id)
        if user and scope.client_id:
            order = ((user, client), (user, DEFAULT), (DEFAULT, client), (DEFAULT, DEFAULT))
            return self._first(*(QuotaEntity(*names) for names in order))
        if user:
            return self._first(
                QuotaEntity(user, None),
                QuotaEntity(DEFAULT, None),
                QuotaEntity(user, DEFAULT),
                QuotaEntity(DEFAULT, DEFAULT),
            )
        if scope.client_id:
            return self._first(
                QuotaEntity(None, client),
                QuotaEntity(None, DEFAULT),
                QuotaEntity(DEFAULT, client),
                QuotaEntity(DEFAULT, DEFAULT),
            )
        return self._first(
            QuotaEntity(None, DEFAULT), QuotaEntity(DEFAULT, DEFAULT), QuotaEntity(DEFAULT, None)
        )

    def _first(self, *entities: QuotaEntity) -> float | None:
        return next((self._bounds[entity] for entity in entities if entity in self._bounds), None)
