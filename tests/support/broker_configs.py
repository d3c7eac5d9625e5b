"""Configurations of a broker from a few properties, and why one is refused."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError

BASE = {"zookeeper.connect": "zk:2181", "broker.id": "1", "log.dirs": "/data"}


def make(**texts):
    return BrokerConfig.from_properties({**BASE, **texts.pop("props", {}), **texts})


def problems_of(props):
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.from_properties({**BASE, **props})
    return {problem.key: problem.message for problem in refusal.value.problems}
