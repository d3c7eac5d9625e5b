"""A load of real clients beside a playbook, on a lab whose brokers have their hosts' numbers, judged by the history
checker at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from lab import Lab
from rig.topics import delete_topics


@contextmanager
def checked_load(bootstrap: str, plan: LoadPlan, directory: Path, run: str) -> Iterator[Load]:
    """The load under way; at its end its topics are deleted."""
    with Load(bootstrap, plan, directory, run=run) as load:
        load.await_progress(500, timeout_s=120)
        yield load
    delete_topics(bootstrap, load.topics)


def assert_no_anomaly(lab: Lab, load: Load, hosts: Iterable[str]) -> None:
    """In what the clients saw, by the history checker, and in what the brokers of these hosts have."""
    history = load.finish(timeout_s=240)
    places = {
        int(host[1:]): lab.files.root(lab.host(host)) / f"var/lib/landline/broker-{host[1:]}"
        for host in hosts
    }
    assert not (found := findings(history, places)), summary(found)
