"""What a Fetch reads for a principal with few permissions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.protocol.api_keys import ApiKey
from broker.replication.session_news import SessionNews
from broker.security.acls import CLUSTER_NAME, AclOperation
from broker.server.apis import fetch
from broker.server.fetch_sessions import FetchContext
from tests.unit.server.test_access import Rules, guarded
from tests.unit.server.test_longest_waits import Broker, fetched, requested


def test_news_of_a_followers_session_are_for_whom_may_read_as_a_follower_alone() -> None:
    """They are read without asking the authorizer again, so a consumer does not get them."""
    broker = Broker()
    broker.peers = SimpleNamespace(knows=lambda _connection: True)  # type: ignore[attr-defined]
    session = FetchContext(())
    session.news = SessionNews()
    broker.fetch_sessions = SimpleNamespace(begin=lambda _asked, _wanted, _owner: session)

    def ask(replica_id: int, *permitted: tuple[AclOperation, str]) -> object:
        broker.access = guarded(Rules(*permitted)).access
        asked = {**fetched(1_000), "replica_id": replica_id}
        fetch.handle(requested(ApiKey.FETCH, 11, asked), broker)  # type: ignore[arg-type]
        return broker.news.pop()

    acts = AclOperation.CLUSTER_ACTION, CLUSTER_NAME
    assert ask(2, acts) is session.news
    assert ask(2) is None
    assert ask(-1, acts) is None
    assert ask(-1) is None


@pytest.mark.parametrize(
    ("replica_id", "may_follow", "is_exempt"), [(2, True, True), (2, False, False), (-1, True, False)]
)
def test_only_who_may_follow_is_exempt_from_the_quotas(
    replica_id: int, may_follow: bool, is_exempt: bool
) -> None:
    told: list[str] = []
    broker = Broker()
    broker.peers = SimpleNamespace(knows=lambda _connection: True)  # type: ignore[attr-defined]
    broker.fetch = lambda _params, _entries, answer, _news: answer([])  # type: ignore[assignment, method-assign]
    broker.quotas = SimpleNamespace(  # type: ignore[assignment]
        active=True,
        most_fetched=lambda _request: 1 << 20,
        exempt=lambda _request: told.append("exempt"),
        of_fetch=lambda _request, _size: told.append("measured") or 0,
    )
    may = [(AclOperation.CLUSTER_ACTION, CLUSTER_NAME)] if may_follow else []
    broker.access = guarded(Rules(*may)).access
    asked = {**fetched(0), "replica_id": replica_id}
    fetch.handle(requested(ApiKey.FETCH, 11, asked), broker)  # type: ignore[arg-type]
    assert told == ["exempt" if is_exempt else "measured"]
