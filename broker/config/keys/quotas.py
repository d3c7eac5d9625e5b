"""Quotas and metrics."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLASS, CLUSTER_WIDE, INT, LIST, LONG, LOW, REFUSED, STRING, USED, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("quota.window.num", INT, 11, LOW, valid=at_least(1), use=USED,
        doc="Samples kept for client quotas."),
    Key("quota.window.size.seconds", INT, 1, LOW, valid=at_least(1), use=USED,
        doc="Length of a client quota sample."),
    Key("controller.quota.window.num", INT, 11, LOW, valid=at_least(1), use=USED,
        doc="Samples kept for the quota on topic changes."),
    Key("controller.quota.window.size.seconds", INT, 1, LOW, valid=at_least(1), use=USED,
        doc="Length of a sample for the quota on topic changes."),
    Key("replication.quota.window.num", INT, 11, LOW, valid=at_least(1), use=USED,
        doc="Samples kept for replication throttles."),
    Key("replication.quota.window.size.seconds", INT, 1, LOW, valid=at_least(1), use=USED,
        doc="Length of a replication throttle's sample."),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, LOW, valid=at_least(1), use=USED,
        doc="Samples kept for the throttle on moves between directories."),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, LOW, valid=at_least(1), use=USED,
        doc="Length of a sample for the throttle on moves between directories."),
    Key("client.quota.callback.class", CLASS, None, LOW, use=REFUSED,
        doc="Java class that decides client quotas. Landline loads no Java classes."),
    Key("metric.reporters", LIST, (), LOW, mode=CLUSTER_WIDE,
        doc="Java classes that report metrics. Landline serves /metrics instead."),
    Key("auto.include.jmx.reporter", BOOLEAN, True, LOW,
        doc="Whether metrics are reported by JMX, which Landline does not have."),
    Key("kafka.metrics.reporters", LIST, (), LOW,
        doc="Java classes that report the older metrics."),
    Key("kafka.metrics.polling.interval.secs", INT, 10, LOW, valid=at_least(1),
        doc="How often kafka.metrics.reporters report."),
    Key("metrics.num.samples", INT, 2, LOW, valid=at_least(1), use=USED,
        doc="Samples kept for the average throttle times of the quotas' metrics."),
    Key("metrics.recording.level", STRING, "INFO", LOW,
        doc="Lowest recording level of metrics."),
    Key("metrics.sample.window.ms", LONG, 30000, LOW, valid=at_least(1), use=USED,
        doc="Length of a sample of the average throttle times."),
    Key("telemetry.max.bytes", INT, 1_048_576, LOW, valid=at_least(1),
        doc="Largest push of client metrics (KIP-714)."),
)
# fmt: on
