"""Shared memory of the ranks of one node: each rank's segment, mapped by all others.

A segment holds control words, then for each of `DEPTH` ticks the lines of the rank's
publications, then for each of them the slots with what was published. It is a sparse
file: only what calls have needed takes memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.errors import TransportUnavailable

FOLDER = Path("/dev/shm")
PREFIX = "hpcoll"
STALE_S = 60.0

LINE_NBYTES = 64
PAYLOAD_AT = 16
PAYLOAD_NBYTES = 48
"""So much is published inside the line itself."""

DONE_AT, SLEEPING_AT, DOORBELL_AT, NAP_AT, SLEEPERS_AT = 0, 64, 72, 96, 128
"""Places of the control words in a segment; the first rank's count of sleepers serves all."""

NAP_NS = 1_000_000
DEPTH = 4
LINES = 8192
CONTROL_NBYTES = 4096
LINE_STRIDE = (LINES + 67) * LINE_NBYTES
"""From one tick's lines to the next one's: no multiple of a page, which would fall in the
same sets of the caches."""
SLOTS_AT = -(-(CONTROL_NBYTES + DEPTH * LINE_STRIDE) // 4096) * 4096
SLOTS_NBYTES = 1 << 20
SLOTS_STRIDE = SLOTS_NBYTES + 4096
SEGMENT_NBYTES = SLOTS_AT + DEPTH * SLOTS_STRIDE

_NORESERVE = 0x4000


class SharedFile:
    """A sparse file in shared memory: made by one rank, mapped by all.

    Parameters
    ----------
    nbytes : int
        Size of the address range.
    name : str, optional
        An existing file's name; a new one is made without it.
    """

    def __init__(self, nbytes: int, name: str | None = None) -> None:
        self.nbytes = nbytes
        self.name = name or f"{PREFIX}-{os.getuid()}-{os.getpid()}-{secrets.token_hex(6)}"
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if name is None:
            flags |= os.O_CREAT | os.O_EXCL
        self._linked = name is None
        self._fd = os.open(FOLDER / self.name, flags, 0o600)
        try:
            if name is None:
                os.ftruncate(self._fd, nbytes)
            elif os.fstat(self._fd).st_uid != os.getuid():
                raise PermissionError(f"{self.name} belongs to another user")
            self._map = mmap.mmap(self._fd, nbytes, flags=mmap.MAP_SHARED | _NORESERVE)
        except BaseException:
            self.unlink()
            os.close(self._fd)
            raise
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.address = int(self.bytes.ctypes.data)
        if name is not None:
            os.close(self._fd)
            self._fd = -1

    def unlink(self) -> None:
        """Remove the name; the memory lives as long as it is mapped."""
        if self._linked:
            self._linked = False
            with contextlib.suppress(FileNotFoundError):
                (FOLDER / self.name).unlink()

    def allocate(self, at: int, nbytes: int) -> None:
        """Make sure that there is memory for a range.

        Raises
        ------
        TransportUnavailable
            If there isn't.
        """
        try:
            os.posix_fallocate(self._fd, at, nbytes)
        except OSError as error:
            raise no_room(nbytes, error) from None

    def free(self, at: int, nbytes: int) -> None:
        """Give a range's memory back; it reads as zeros from then on."""
        page = mmap.PAGESIZE
        first, end = -(-at // page) * page, (at + nbytes) // page * page
        if end > first:
            self._map.madvise(_MADV_REMOVE, first, end - first)

    def close(self) -> None:
        """Unmap, unless arrays on it are still alive."""
        self.unlink()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.bytes = np.empty(0, np.uint8)
        with contextlib.suppress(BufferError):
            self._map.close()


_MADV_REMOVE = getattr(mmap, "MADV_REMOVE", 9)


def no_room(nbytes: int, error: OSError) -> TransportUnavailable:
    """What to say when shared memory is full."""
    try:
        status = os.statvfs(FOLDER)
        room = f"{status.f_bavail * status.f_frsize} of {status.f_blocks * status.f_frsize} B free"
    except OSError:
        room = "its size is unknown"
    return TransportUnavailable(
        f"{FOLDER} has no room for {nbytes} B more ({room}; {error.strerror}): enlarge it (mount "
        f"-o remount,size=..., docker --shm-size=...), or set HPCOLL_TRANSPORT=mpi"
    )


class Segment(SharedFile):
    """The segment of this rank."""

    def __init__(self) -> None:
        super().__init__(SEGMENT_NBYTES)
        self._lines = self._slots = 0
        try:
            self.allocate(0, CONTROL_NBYTES)
        except BaseException:
            self.close()
            raise
        self.words(NAP_AT, 2)[:] = 0, NAP_NS

    def words(self, at: int, count: int) -> NDArray[np.int64]:
        """Some words of it."""
        return self.bytes[at : at + 8 * count].view(np.int64)

    def reserve(self, lines: int, slots_nbytes: int) -> None:
        """Make sure that there is memory for a recipe's lines and slots.

        Raises
        ------
        TransportUnavailable
            If there isn't.
        """
        for tick in range(DEPTH):
            if lines > self._lines:
                self.allocate(CONTROL_NBYTES + tick * LINE_STRIDE, lines * LINE_NBYTES)
            if slots_nbytes > self._slots:
                self.allocate(SLOTS_AT + tick * SLOTS_STRIDE, slots_nbytes)
        self._lines, self._slots = max(lines, self._lines), max(slots_nbytes, self._slots)


_NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-[0-9a-f]+")


def sweep() -> None:
    """Remove what a job left that was killed in the moment between making and unlinking."""
    with contextlib.suppress(OSError):
        for path in FOLDER.glob(f"{PREFIX}-{os.getuid()}-*"):
            match = _NAME.fullmatch(path.name)
            with contextlib.suppress(OSError):
                if match and not alive(int(match[2])) and _age_s(path) > STALE_S:
                    path.unlink()


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def addresses(files: list[Any]) -> NDArray[np.int64]:
    """A table of where files are mapped."""
    return np.array([f.address for f in files], np.int64)
