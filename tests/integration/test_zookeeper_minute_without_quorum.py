"""An ensemble that has no quorum for a minute, twenty times as long as sessions last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.zookeeper_answers import answers_site, endure, no_quorum

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE_S = 60.0


def test_ten_seconds_after_a_minute_without_quorum_there_is_one_controller_and_all_goes_on(
    tmp_path: Path,
) -> None:
    with answers_site(tmp_path, own_disks=False) as site:
        endure(site, no_quorum, MINUTE_S, "quorum")
