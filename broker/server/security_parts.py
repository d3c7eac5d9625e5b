"""What protects a broker from its clients, and clients from each other: TLS and SASL listeners, delegation
tokens, the authorizer, and client quotas.

BrokerServer decides when each of them starts. Without configuration none of them does anything, and the modules
of TLS, SASL and the authorizer are not loaded.
"""

from __future__ import annotations

from broker.config.broker_config import BrokerConfig
from broker.controller.controller import KafkaController
from broker.metrics.registry import Metrics
from broker.network.sasl import SaslListeners
from broker.server import assembly, quota_metrics
from broker.server.access import Access
from broker.server.apis.context import ApiContext
from broker.server.authorizers import start_access
from broker.server.delegation_tokens import DelegationTokens
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.quotas import IDLE_LOOK_MS
from broker.server.tls import follow_files, make_tls
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.zookeeper.cluster_store import ClusterStore


def start_tokens(
    config: BrokerConfig,
    store: ClusterStore,
    controller: KafkaController,
    steps: StartupSteps,
    *,
    scheduler: KafkaScheduler,
    clock: Clock,
) -> DelegationTokens | None:
    """Reads the delegation tokens and follows their changes, until ``steps`` stop that. None without a secret
    to sign them with.
    """
    tokens = assembly.make_delegation_tokens(config, store, clock)
    if tokens is not None:
        steps.undo_by("DelegationTokens", tokens.shutdown)
        store.add_session_listener(tokens.on_session_event)
        check_ms = config.int("delegation.token.expiry.check.interval.ms")
        tokens.startup(scheduler, check_ms, lambda: controller.is_active)
    return tokens


class SecurityParts:
    """The security parts of one broker, made by its BrokerServer.

    ``sockets`` is the SocketServer of the TLS listeners; its ports are not bound yet. ``access`` is None until
    :meth:`start_authorizer`, and stays so without an authorizer. Raises ConfigError if a key store or trust
    store cannot be used.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.tls = make_tls(config)
        self.sockets = assembly.make_socket_server(config, self.tls.handshakes)
        self.quotas = assembly.make_quotas(config, self.sockets.quotas.ip_rates)
        self.access: Access | None = None

    def start_authorizer(self, config: BrokerConfig, store: ClusterStore, steps: StartupSteps) -> None:
        """Reads the ACLs, if an authorizer is configured. Raises StartupError, StoreError."""
        if config.str("authorizer.class.name").strip():
            with steps.step("Authorizer"):
                self.access = start_access(config, store.store, steps)

    def startup(self, scheduler: KafkaScheduler) -> None:
        """Starts what is done from time to time: idle clients are forgotten, changed stores are reloaded."""
        scheduler.schedule("idle-clients", self.quotas.forget_idle, IDLE_LOOK_MS, IDLE_LOOK_MS)
        self.tls.tell()
        follow_files(self.tls, scheduler)

    def make_sasl(self, ctx: ApiContext) -> SaslListeners | None:
        """What the SASL listeners offer, with the SCRAM credentials of all users, which are kept up to date.
        None if there is no such listener.
        """
        if not ctx.config.sasl.listeners:
            return None
        from broker.server.sasl_listeners import make_sasl_listeners
        from broker.server.scram_credentials import ScramCredentials

        credentials = ScramCredentials()
        ctx.dynamic_config.add_entity_listener(credentials.on_entity_config)
        credentials.load(ctx.store.entity_configs("users"))
        return make_sasl_listeners(
            ctx.config,
            credentials,
            ctx.tokens,
            secret=ctx.store.get_or_create_scram_secret(),
            timer=ctx.timer,
            scheduler=ctx.scheduler,
            clock=ctx.clock,
        )

    def register_metrics(self, metrics: Metrics) -> None:
        self.tls.register_metrics(metrics)
        quota_metrics.register_metrics(metrics, self.quotas, self.sockets.quotas.ip_rates)
