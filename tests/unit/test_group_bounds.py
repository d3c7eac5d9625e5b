"""What clients may make a coordinator hold: members' words, members that never come back, groups."""

from __future__ import annotations

from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import Harness

T0 = TopicPartition("t", 0)


def test_a_member_that_says_too_much_of_itself_is_refused():
    h = Harness(landline_group_member_max_bytes=1000)
    assert h.join(protocols=(("range", bytes(1000)),)).error is Errors.INVALID_REQUEST
    many = tuple((f"p{number}", bytes(90)) for number in range(11))
    assert h.join(protocols=many).error is Errors.INVALID_REQUEST
    assert h.join(protocols=(("range", bytes(900)),)).waiting


def test_members_that_never_come_back_have_a_bound_and_those_that_do_join():
    h = Harness(landline_group_pending_max_count=3)
    pending = [h.join(require_known=True).result.member_id for _ in range(3)]
    assert h.join(require_known=True).error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.join(pending[0], require_known=True).waiting
    assert h.join(require_known=True).error is Errors.MEMBER_ID_REQUIRED


def test_groups_have_a_bound_that_those_there_are_do_not_feel():
    h = Harness(landline_group_max_count=2)
    h.stable_group()
    assert h.commit({T0: 1}, group="g2").result == {T0: Errors.NONE}
    assert h.join(group="g3").error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.commit({T0: 1}, group="g3").result == {T0: Errors.GROUP_MAX_SIZE_REACHED}
    assert h.commit({T0: 2}, group="g2").result == {T0: Errors.NONE}
