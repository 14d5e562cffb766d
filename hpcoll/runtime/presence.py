"""Who is still there: each rank holds a record lock on one shared file until it ends.

The kernel drops the lock with the process, however that ends and before anyone waits for
it, and tells any other process, in whatever PID namespace.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux with 64-bit offsets: type, whence, start, length, pid."""


class Presence:
    """Byte r of a file, locked by rank r.

    Parameters
    ----------
    path : Path
        The file; all ranks give the same one. A process must not open and close it
        elsewhere meanwhile: that drops its locks.
    rank : int
        This rank.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._rank = rank
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)

    def gone(self, ranks: Iterable[int]) -> list[int]:
        """Those of other ranks whose processes have ended."""
        return [r for r in ranks if r != self._rank and not self._holds(r)]

    def _holds(self, rank: int) -> bool:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, rank, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        return bool(kind != fcntl.F_UNLCK)

    def close(self) -> None:
        """Let go of the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
