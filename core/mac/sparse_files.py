"""Free disk space in the middle of a file without making the file shorter."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
from typing import Final

PAGE_BYTES: Final = 4096  # what macOS wants holes to begin and end with
_F_PUNCHHOLE: Final = 99
_KEEP_SIZE_PUNCH_HOLE: Final = 0x03


def punch_hole(fd: int, begin: int, end: int) -> None:
    """Free the whole pages of [begin, end) of a file open for writing; they then read as zeros. Raises OSError."""
    begin, end = -(-begin // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES
    if begin >= end:
        return
    if sys.platform == "darwin":
        fcntl.fcntl(fd, _F_PUNCHHOLE, struct.pack("=IIqq", 0, 0, begin, end - begin))
    else:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(fd, _KEEP_SIZE_PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(end - begin)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
