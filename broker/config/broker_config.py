"""BrokerConfig: a broker's checked settings, in the layers of Kafka's KIP-226.

Static settings come from the properties file and `--override`. Dynamic ones come from `/config/brokers`, and
``with_dynamic`` adds them. A key has the value of the first layer that sets it: this broker's dynamic
configs, the cluster-wide dynamic defaults, the static settings, the table's default. `server.dynamic_config`
follows changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from broker.config.authorizer_class import authorizer_settings, check_authorizer
from broker.config.cross_checks import check_together
from broker.config.endpoint import Endpoint
from broker.config.http_keys import HTTP_KEY_STORE
from broker.config.key import Mode, Use
from broker.config.keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS
from broker.config.listener_keys import LISTENER_PREFIX, ListenerConfig, own_key, without_effect
from broker.config.listeners import Listeners, resolve_listeners, with_local_name
from broker.config.log_config import LONG_MAX, LogConfig
from broker.config.log_dirs import log_dir_paths
from broker.config.problems import ConfigError, Problem, did_you_mean
from broker.config.sasl import NO_SASL, Sasl, read_sasl
from broker.config.static_check import check_static, why_refused
from broker.config.topic_config import SYNONYMS, build_log_config
from broker.config.types import Value, render
from broker.config.values import ConfigValues


class BrokerConfig(ConfigValues):
    """A broker's settings; Kafka's KafkaConfig. It is immutable: a dynamic change creates a new one. Keys
    have Kafka's names.

    ``static_values``, ``dynamic_default_values`` and ``dynamic_broker_values`` are the layers. ``unused`` has
    the names of set keys that Landline ignores. ``warnings`` has the lines to log at start. ``sasl`` is what the
    keys say about SASL. ``authorizer_settings`` are those that the authorizer reads.
    """

    def __init__(
        self,
        static_values: Mapping[str, Value],
        dynamic_default_values: Mapping[str, Value],
        dynamic_broker_values: Mapping[str, Value],
        *,
        listeners: Listeners,
        unused: Sequence[str] = (),
        warnings: Sequence[str] = (),
        sasl: Sasl = NO_SASL,
        authorizer: Mapping[str, str] | None = None,
    ) -> None:
        self.static_values = static_values
        self.dynamic_default_values = dynamic_default_values
        self.dynamic_broker_values = dynamic_broker_values
        self.unused = tuple(unused)
        self.warnings = tuple(warnings)
        self.authorizer_settings = dict(authorizer or {})
        self._listeners = listeners
        self.sasl = sasl
        super().__init__({**static_values, **dynamic_default_values, **dynamic_broker_values})

    @classmethod
    def from_properties(
        cls, props: Mapping[str, str], overrides: Sequence[tuple[str, str]] = ()
    ) -> BrokerConfig:
        """Checks ``props`` (with line numbers if they are :class:`Properties`) with ``overrides`` on top.

        Raises :class:`ConfigError` with all problems.
        """
        texts, lines = dict(props), dict(getattr(props, "lines", {}))
        for name, text in overrides:
            texts[name] = text
            lines.pop(name, None)
        checked = check_static(texts, lines)
        problems = checked.problems
        bad = {problem.key for problem in problems}

        def complain(key: str, message: str) -> None:
            if key not in bad:  # an invalid key has its default here: one message is enough
                problems.append(Problem(key, lines.get(key), message))

        def get(key: str) -> Any:
            return checked.values.get(key, BROKER_KEYS[key].default)

        listeners = resolve_listeners(get, texts, complain)
        sasl = read_sasl(get, checked.listener_texts, listeners, complain)
        check_together(get, checked.values, complain)
        http_does = bool(get(HTTP_KEY_STORE))
        for name in without_effect(checked.values, listeners.bound, http_does=http_does):
            if name.endswith("ssl.client.auth") and checked.values[name] != "none":
                complain(name, "no listener that it is for speaks SSL, so no client is asked: remove it")
            checked.unused.append(name)
        check_authorizer(get, texts, complain)
        if problems:
            problems.sort(key=lambda problem: (problem.line is None, problem.line or 0))
            raise ConfigError(problems, getattr(props, "source", ""))
        return cls(
            checked.values,
            {},
            {},
            listeners=listeners,
            unused=checked.unused,
            warnings=_warnings(props, texts, checked.unused),
            sasl=sasl,
            authorizer=authorizer_settings(texts),
        )

    def with_dynamic(
        self, overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """This config with other dynamic layers: ``overrides`` are this broker's, ``defaults`` the cluster's.

        Raises :class:`ConfigError` if a key is unknown, has an invalid value, or cannot be changed at
        run time.
        """
        broker_values, problems = check_dynamic(overrides)
        default_values, more = check_dynamic(defaults or {})
        changed = BrokerConfig(
            self.static_values,
            default_values,
            broker_values,
            listeners=self._listeners,
            unused=self.unused,
            warnings=self.warnings,
            sasl=self.sasl,
            authorizer=self.authorizer_settings,
        )
        changed._check_together([*problems, *more])
        return changed

    def _check_together(self, problems: list[Problem]) -> None:
        """Raises ConfigError with these problems and those of keys that contradict each other."""
        check_together(
            self.value,
            self.set_values,
            lambda key, message: problems.append(Problem(key, None, message)),
        )
        if problems:
            raise ConfigError(problems)

    def with_static(self, values: Mapping[str, Value]) -> BrokerConfig:
        """This config with other static values, which are checked. Raises :class:`ConfigError` if they contradict
        each other or the dynamic ones.
        """
        changed = BrokerConfig(
            values,
            self.dynamic_default_values,
            self.dynamic_broker_values,
            listeners=self._listeners,
            unused=self.unused,
            warnings=self.warnings,
            sasl=self.sasl,
            authorizer=self.authorizer_settings,
        )
        changed._check_together([])
        return changed

    def with_own(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """This config with other dynamic configs of this broker. Raises :class:`ConfigError`."""
        defaults = {name: render(value) or "" for name, value in self.dynamic_default_values.items()}
        return self.with_dynamic(overrides, defaults)

    # --- values derived from several keys

    @property
    def broker_id(self) -> int:
        """The broker id, or -1 if it is to be generated."""
        return self.int("broker.id")

    @property
    def is_standalone(self) -> bool:
        return self.bool("landline.standalone")

    @cached_property
    def log_dirs(self) -> list[str]:
        return log_dir_paths(self.opt_str("log.dirs"), self.str("log.dir"))

    @property
    def listeners(self) -> list[Endpoint]:
        return [*self._listeners.bound]

    @cached_property
    def advertised_listeners(self) -> list[Endpoint]:
        """The advertised endpoints. An empty host means this host's canonical name, port 0 the bound port."""
        return with_local_name(self._listeners.advertised, _local_name)

    @property
    def inter_broker_listener_name(self) -> str:
        return self._listeners.inter_broker

    @property
    def controller_listener_name(self) -> str:
        """The listener by which controllers reach this broker, and this one as controller all others."""
        return self._listeners.controller

    @property
    def listeners_of_brokers(self) -> frozenset[str]:
        """The listeners that are for other brokers' requests alone: those that clients do not need."""
        own = {self.inter_broker_listener_name, self.controller_listener_name}
        is_shared = len(self.listeners) == len(own)
        return frozenset(own - {self.inter_broker_listener_name} if is_shared else own)

    def for_listener(self, name: str) -> ListenerConfig:
        """A listener's configs."""
        return ListenerConfig(name, self.set_values)

    @property
    def log_retention_ms(self) -> int:
        """The retention time, or -1 for no limit."""
        return self._topic_default_int("retention.ms")

    @property
    def log_roll_ms(self) -> int:
        return self._topic_default_int("segment.ms")

    @property
    def log_roll_jitter_ms(self) -> int:
        return self._topic_default_int("segment.jitter.ms")

    @property
    def log_flush_interval_ms(self) -> int:
        return self._topic_default_int("flush.ms")

    def _topic_default_int(self, name: str) -> int:
        value = self.topic_default(name)
        if not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}, no int")
        return value

    # --- topics

    def topic_default(self, name: str) -> Value:
        """The value of a topic config that the topic does not set; None if the broker has no key for it."""
        for synonym in SYNONYMS.get(name, ()):
            value = self.value(synonym.key)
            if value is not None:
                return _scaled(name, value, synonym.factor)
        return None

    @cached_property
    def _topic_defaults(self) -> Mapping[str, Value]:
        return {name: self.topic_default(name) for name in SYNONYMS}

    def log_config(self) -> LogConfig:
        """The settings of a topic without configs of its own."""
        return self.topic_log_config({})

    def topic_log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's settings. Raises :class:`ConfigError` for an invalid name or value."""
        return build_log_config(self._topic_defaults, overrides) if overrides else self._default_log_config

    @cached_property
    def _default_log_config(self) -> LogConfig:
        return build_log_config(self._topic_defaults, {})


def check_dynamic(overrides: Mapping[str, str]) -> tuple[dict[str, Value], list[Problem]]:
    """The valid dynamic broker configs, parsed, and the problems of the others."""
    values: dict[str, Value] = {}
    problems = []
    for name, text in overrides.items():
        key = BROKER_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name) or own_key(name)
        if key is None:
            message = "is no broker config." + did_you_mean(name, [*BROKER_KEYS, *DYNAMIC_ONLY_KEYS])
        elif key.use is Use.REFUSED:
            message = why_refused(name)
        elif key.mode is Mode.CLUSTER_WIDE and key.use is Use.ACCEPTED:
            message = "has no effect in Landline: see docs/configuration.md"
        elif not key.alterable:
            message = "cannot be changed while the broker runs: set it in server.properties and restart"
            own = own_key(f"{LISTENER_PREFIX}x.{name}")
            if own is not None and own.alterable:
                message += f", or set {LISTENER_PREFIX}<listener>.{name}"
        else:
            try:
                values[name] = key.parse(text)
                continue
            except ValueError as error:
                message = f"{'its value' if key.sensitive else repr(text)} is not valid: {error}"
        problems.append(Problem(name, None, message))
    return values, problems


def _scaled(name: str, value: Value, factor: int) -> Value:
    if factor == 1 or not isinstance(value, int):
        # Kafka treats any negative retention as no limit.
        return -1 if name == "retention.ms" and isinstance(value, int) and value < 0 else value
    return -1 if value < 0 else min(value * factor, LONG_MAX)


def _warnings(props: Mapping[str, str], texts: Mapping[str, str], unused: Sequence[str]) -> list[str]:
    warnings = [
        f"{key} is set on lines {', '.join(map(str, lines))}: the last one counts"
        for key, lines in getattr(props, "duplicates", {}).items()
    ]
    if unused:
        warnings.append("Kafka's keys that Landline does not use: " + ", ".join(sorted(unused)))
    if "log.dirs" not in texts and "log.dir" not in texts:
        warnings.append("log.dirs is not set: data goes to /tmp/kafka-logs, which a reboot may clear")
    return warnings


def _local_name() -> str:
    import socket  # imported late: not needed if the configuration names a host

    return socket.getfqdn()
