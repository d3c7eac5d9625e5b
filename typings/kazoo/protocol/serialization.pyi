from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

class Create:
    def __init__(self, path: str, data: bytes | None, acl: Sequence[object], flags: int) -> None: ...

class Close:
    type: ClassVar[int]
    @classmethod
    def serialize(cls) -> bytes: ...

class Connect(NamedTuple):
    protocol_version: int
    last_zxid_seen: int
    time_out: int
    session_id: int
    passwd: bytes | None
    read_only: bool
    def serialize(self) -> bytearray: ...
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[Self, int]: ...

class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    err: int
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[Self, int]: ...
