"""The C library's heaps, by ctypes: what is free in them, and ``malloc_trim``. Only glibc (2.33 and later) has both."""

from __future__ import annotations

import ctypes


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2`` (2.33 and later), summed over all heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]
    fordblks: int


class GlibcHeap:
    """The C library's heaps of this process: the keeper's NativeHeap. Raises OSError where it cannot trim or does not
    tell.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        try:
            self._trim, self._info = library.malloc_trim, library.mallinfo2
        except AttributeError as error:
            raise OSError(f"the C library cannot give memory back: {error}") from error
        self._trim.argtypes = [ctypes.c_size_t]
        self._info.restype = _MallInfo

    def free_bytes(self) -> int:
        """Some 50 µs."""
        return int(self._info().fordblks)

    def trim(self) -> None:
        """Without the GIL: who takes nothing of the heap under way goes on."""
        self._trim(0)
