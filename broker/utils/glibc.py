"""The C library's heaps through ctypes: their free bytes, and ``malloc_trim``. Only glibc 2.33 and later
has both.
"""

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
    """The C library's heaps of this process, as HeapKeeper's NativeHeap. Raises OSError if the library cannot
    trim or report.
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
        """The free bytes in the heaps. Takes about 50 µs."""
        return int(self._info().fordblks)

    def trim(self) -> None:
        """Gives free pages back. Runs without the GIL: only threads that use the heap being trimmed wait."""
        self._trim(0)
