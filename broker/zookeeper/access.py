"""How this process identifies itself to ZooKeeper, and who else may use the znodes that it creates. Pure.

The server makes it from the configuration. The contexts of TLS are in :mod:`broker.tls.zookeeper`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.zookeeper.acl import PERMISSIONS, Acl
from broker.zookeeper.connect_string import Secure

OPEN: Final = (Acl("world", "anyone", PERMISSIONS),)
# ZooKeeper replaces `auth` by every identity of the session that creates the node.
_CREATOR: Final = Acl("auth", "", PERMISSIONS)
_READABLE: Final = Acl("world", "anyone", "r")
_OLD_CONSUMERS: Final = "/consumers"
# Kafka's ZkData.SensitiveRootPaths: credentials, encoded passwords, and tokens.
# ZooKeeper's default of jute.maxbuffer: the bytes of a request without its length.
MOST_BYTES: Final = 0xFFFFF
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """What a session needs beside the servers' addresses. ``digest`` is ``user:password`` for the scheme
    `digest`; ``sasl`` has the user and the password of SASL DIGEST-MD5. ``sets_acls`` is zookeeper.set.acl.
    ``most_bytes`` is the servers' jute.maxbuffer.
    """

    secure: Secure | None = None
    digest: str | None = field(default=None, repr=False)
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    sets_acls: bool = False
    most_bytes: int = MOST_BYTES

    def acls_of(self, path: str) -> tuple[Acl, ...]:
        """The ACL of a node that is created; ``path`` is below the chroot."""
        return secure_acls(path) if self.sets_acls else OPEN


def secure_acls(path: str) -> tuple[Acl, ...]:
    """Kafka's ZkData.defaultAcls: only the creator may change a node, and all may read it unless it is
    sensitive. ``/consumers`` is open, for the consumers of old.
    """
    if path == _OLD_CONSUMERS:
        return OPEN
    if path.startswith(_SENSITIVE):
        return (_CREATOR,)
    return _CREATOR, _READABLE


NO_ACCESS: Final = ZooKeeperAccess()
