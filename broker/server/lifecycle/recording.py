"""What a broker records of its own start and stop, if ``landline.lifecycle.enable`` is set.

:mod:`.lifecycle_file` makes and stores the events, and :mod:`.lifecycle_publisher` publishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.server.lifecycle.lifecycle_file import Lifecycle, LifecycleFile
from broker.server.lifecycle.lifecycle_publisher import LifecyclePublisher
from broker.server.lifecycle.startup_steps import StartupSteps, StepRecord
from broker.server.metadata_cache import MetadataCache
from broker.utils.scheduler import KafkaScheduler


class LifecycleRecording:
    """The lifecycle events of one broker. It does nothing before :meth:`begin`, and nothing at all if the
    config does not enable it.
    """

    def __init__(self) -> None:
        self._lifecycle: Lifecycle | None = None

    def begin(self, config: BrokerConfig, broker_id: Callable[[], int]) -> None:
        """Records from now on. ``broker_id`` is called when events are stored."""
        if config.bool("landline.lifecycle.enable"):
            self._lifecycle = Lifecycle(LifecycleFile(Path(config.log_dirs[0])), broker_id)

    def observe(self, record: StepRecord) -> None:
        """Adds the event of a step."""
        if self._lifecycle is not None:
            self._lifecycle.observe(record)

    def end(self, kind: str, began_ns: int | None = None, outcome: str = "ok", detail: str = "") -> None:
        """Adds the event of the whole start or stop, and stores the events. Never raises."""
        if self._lifecycle is not None:
            self._lifecycle.end(kind, began_ns, outcome, detail)

    def publish(
        self,
        scheduler: KafkaScheduler,
        steps: StartupSteps,
        *,
        cache: MetadataCache,
        ensure_topics: Callable[[Iterable[str]], None],
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    ) -> None:
        """Publishes the stored events, by ``scheduler``. ``steps`` stop that."""
        if self._lifecycle is not None:
            publisher = LifecyclePublisher(self._lifecycle.file, cache, ensure_topics, make_channel)
            steps.undo_by("LifecyclePublisher", publisher.shutdown)
            publisher.startup(scheduler)
