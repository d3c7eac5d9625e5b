"""The comparison of two znode trees reports a different path, key, type, version or kind, and
nothing else.
"""

from __future__ import annotations

import pytest

from tests.support.znode_tree import Znode, differences


def tree(
    data: bytes | None = b'{"version":1,"host":"a","isr":[1,2]}', ephemeral: bool = False, path: str = "/a"
):
    return {path: Znode(data, ephemeral)}


@pytest.mark.parametrize(
    ("theirs", "story"),
    [
        (tree(path="/b"), "only ours has /a"),
        (tree(ephemeral=True), "/a: ephemeral is False, theirs True"),
        (tree(b'{"version":2,"host":"a","isr":[1,2]}'), "/a: .version is 1, theirs 2"),
        (tree(b'{"version":"1","host":"a","isr":[1,2]}'), "/a: .version is 1, theirs '1'"),
        (tree(b'{"version":1,"host":null,"isr":[1,2]}'), "/a: .host is 'a', theirs None"),
        (tree(b'{"version":1,"host":"a"}'), "/a: value has keys ['host', 'isr', 'version'], theirs"),
        (tree(b'{"version":1,"host":"a","isr":[1]}'), "/a: .isr is [1, 2], theirs [1]"),
        (tree(None), "/a: value is"),
    ],
)
def test_a_difference_in_kind_is_told(theirs, story) -> None:
    assert any(found.startswith(story) for found in differences(tree(), theirs))


def test_another_address_and_another_isr_member_are_no_difference() -> None:
    assert differences(tree(), tree(b'{"version":1,"host":"b","isr":[2,3]}')) == []
