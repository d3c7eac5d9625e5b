"""What a Fetch reads for a principal with few permissions."""

from __future__ import annotations

from types import SimpleNamespace

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
