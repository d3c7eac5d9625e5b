"""Which topics the members' regular expressions match: found before a heartbeat takes the group's lock.

A match may take half a second, and the group serves nobody while its lock is held. So :func:`regex_to_match` asks the
group what is missing, :class:`RegexMatches` matches, and the heartbeat brings the result with it
(:class:`~.consumer.messages.RegexMatch`). Each member's heartbeat matches its own expression again after the topics or
the client's rights have changed. Members with the same expression share the result, as in Kafka 4.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final, NamedTuple

from broker.coordinator.group.consumer.checks import invalid_regex
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import JOIN_EPOCH
from broker.coordinator.group.consumer.messages import ClusterTopics, HeartbeatRequest, MatchedAt, RegexMatch
from broker.coordinator.group.consumer.topic_pattern import InvalidPattern, compiled

#: Kept results: as many names, and as many expressions. A name is eight bytes here; its text is the topic's.
_MOST_NAMES: Final = 500_000
_MOST_REGEXES: Final = 256

_Found = frozenset[str] | InvalidPattern


class Missing(NamedTuple):
    """An expression that must be matched for a member. ``is_known``: the group has an older result."""

    regex: str
    is_known: bool


def regex_to_match(
    group: ConsumerGroup | None, request: HeartbeatRequest, topics: ClusterTopics
) -> Missing | None:
    """The expression of the member, if the group has no result of these topics and rights. Pure."""
    if request.member_epoch < JOIN_EPOCH:
        return None
    regex = request.subscribed_regex
    if regex is None and group is not None and request.member_id in group.members:
        regex = group.members[request.member_id].subscribed_regex
    if not regex:
        return None
    if group is None:
        return Missing(regex, is_known=False)
    matched_at = group.matched_at.get(regex)
    if matched_at == MatchedAt(topics.version, request.rights):
        return None
    return Missing(regex, is_known=matched_at is not None)


class RegexMatches:
    """Matches regular expressions, one at a time, and keeps the results for the present topics. Thread-safe.

    Called by handler threads, with no lock held. One at a time, because several would only take the interpreter from
    each other, and because many members ask for the same at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # lock order 33
        self._version = -1
        self._found: dict[str, _Found] = {}
        self._names = 0

    def matched(
        self, request: HeartbeatRequest, missing: Missing | None, topics: ClusterTopics
    ) -> HeartbeatRequest:
        """The request with what is missing. While another match runs, a member with an older result keeps it until its
        next heartbeat, so that it does not take a handler thread to wait.
        """
        if missing is None:
            return request
        found = self._find(missing.regex, topics, wait=not missing.is_known)
        if found is None:
            return request
        seen = MatchedAt(topics.version, request.rights)
        if isinstance(found, InvalidPattern):
            match = RegexMatch(missing.regex, seen, refusal=invalid_regex(missing.regex, found))
        else:
            match = RegexMatch(missing.regex, seen, frozenset(request.may_describe(found)))
        return replace(request, match=match)

    def _find(self, regex: str, topics: ClusterTopics, *, wait: bool) -> _Found | None:
        """All topics that match. None if that is to be asked again."""
        if not self._lock.acquire(blocking=wait):
            return None
        try:
            if topics.version > self._version:
                self._version, self._found, self._names = topics.version, {}, 0
            elif topics.version < self._version:
                return _match(regex, topics)  # another thread has seen newer topics
            found = self._found.get(regex)
            if found is None:
                found = _match(regex, topics)
                self._keep(regex, found)
            return found
        finally:
            self._lock.release()

    def _keep(self, regex: str, found: _Found) -> None:
        names = 0 if isinstance(found, InvalidPattern) else len(found)
        if self._names + names > _MOST_NAMES or len(self._found) >= _MOST_REGEXES:
            self._found, self._names = {}, 0
        self._found[regex] = found
        self._names += names


def _match(regex: str, topics: ClusterTopics) -> _Found:
    try:
        return compiled(regex).matching(topics.by_name)
    except InvalidPattern as error:
        return InvalidPattern(str(error))  # without the traceback, which would keep the match in memory
