"""The slim environment has the versions of the whole one."""

from tools.deploy_lock import LOCK, content


def test_what_deploying_needs_is_the_part_of_the_lock_that_it_should_be():
    assert LOCK.read_text() == content(), "python -m tools.deploy_lock"
