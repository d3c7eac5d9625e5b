import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

int_struct: struct.Struct
multiheader_struct: struct.Struct
stat_struct: struct.Struct

def read_buffer(bytes: bytes, offset: int) -> tuple[bytes | None, int]: ...

class MultiHeader(NamedTuple):
    type: int
    done: bool
    err: int
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[Self, int]: ...

class GetData:
    type: ClassVar[int]
    def __init__(self, path: str, watcher: Callable[[object], None] | None) -> None: ...
    def serialize(self) -> bytearray: ...

class Create:
    def __init__(self, path: str, data: bytes | None, acl: Sequence[object], flags: int) -> None: ...

class Transaction(NamedTuple):
    operations: Sequence[Any]
    def serialize(self) -> bytearray: ...

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

class SASL(NamedTuple):
    challenge: bytes

class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    err: int
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[Self, int]: ...
